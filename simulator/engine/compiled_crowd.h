/* A crowd: many active classes, all of them joined through shared resources and none with a cap, as where everybody
 * sends to everybody. All are affected by every change, so that loops over whole arrays do what `refresh` does one by
 * one; entries of classes that are not active come out as never due. */

enum { CROWD = 16 };

/* Whether active classes are so many that loops over all classes and resources are worth it. */
static int may_be_crowd(const Run *r)
{
    return r->active_classes >= CROWD && !r->capped_classes && 4 * r->active_classes >= r->next_class + r->resources;
}

/* Whether all resources in use are joined, through active classes, to those that have changed. Those that were come
 * upon last are looked at first: in a crowd they soon lead to all. */
static int joins_all(Run *r, Share *s)
{
    for (i64 i = 0; i < s->resources && s->loaded < r->loaded_resources; i++) {
        i64 number = r->visited[s->resources - 1];
        r->visited[s->resources - 1] = r->visited[i];
        r->visited[i] = number;
        for (i64 use = r->resource[number].first_use; use >= 0; use = r->use[use].next) {
            const Class *c = r->class_ + r->use[use].class_number;
            for (i64 other = c->first_use; other < c->end_use; other++) visit(r, s, r->use[other].resource);
        }
    }
    return s->loaded == r->loaded_resources;
}

static void serve_all(Run *r)
{
    const double now_s = r->now_s, *rate = r->rate;
    double *restrict served = r->served, *restrict since_s = r->since_s;
    for (i64 c = 0, classes = r->next_class; c < classes; c++) {
        served[c] += rate[c] * (now_s - since_s[c]);
        since_s[c] = now_s;
    }
}

static void set_ends_of_all(Run *r)
{
    const double now_s = r->now_s, *rate = r->rate, *level = r->level, *served = r->served;
    double *restrict end_due_s = r->end_due_s;
    double first_s[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
    i64 classes = r->next_class, c;
    for (c = 0; c < classes; c++) end_due_s[c] = now_s + most(level[c] - served[c], 0.0) / rate[c];
    for (c = 0; c + 4 <= classes; c += 4)
        for (int i = 0; i < 4; i++) first_s[i] = least(first_s[i], end_due_s[c + i]);
    for (; c < classes; c++) first_s[0] = least(first_s[0], end_due_s[c]);
    r->crowd_due_s = least(least(first_s[0], first_s[1]), least(first_s[2], first_s[3]));
}

/* `refresh` of a crowd. */
static void refresh_crowd(Run *r, Share *s)
{
    r->is_crowd = 1;
    s->loads_differ = r->other_loads > 0;
    for (i64 i = 0; i < r->resources; i++)
        if (r->resource[i].first_use >= 0) visit(r, s, i);
    serve_all(r);
    for (i64 c = 0; c < r->next_class; c++)
        if (r->class_[c].active) r->pending[s->pending++] = c;
    fill(r, s);
    set_ends_of_all(r);
    r->effort += r->next_class;
}
