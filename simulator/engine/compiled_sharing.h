/* Sharing in the compiled engine: max-min fair, by progressive filling, as simulator's sharing.py does it. A class takes
 * part with its number of active activities; a change costs time in the classes joined to it through resources. */

static void serve(Run *r, i64 number)
{
    if (r->class_[number].active) r->served[number] += r->rate[number] * (r->now_s - r->since_s[number]);
    r->since_s[number] = r->now_s;
}

/* What is to be shared anew by `refresh`: the resources of a class, or, where it has none, the class itself. */
static void mark_changed(Run *r, i64 number)
{
    Class *c = r->class_ + number;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        Resource *resource = r->resource + use->resource;
        if (!resource->is_changed) { resource->is_changed = 1; r->changed[r->changed_count++] = use->resource; }
    }
    if (c->first_use == c->end_use && !c->is_changed) {
        c->is_changed = 1;
        r->changed[r->changed_count++] = r->resources + number;
    }
}

/* A class has its first activity. */
static void enter(Run *r, i64 number)
{
    Class *c = r->class_ + number;
    r->served[number] = 0.0;
    r->active_classes++;
    r->capped_classes += c->cap < INFINITY;
    for (i64 i = c->first_use; i < c->end_use; i++) {
        Resource *resource = r->resource + r->use[i].resource;
        if (resource->first_use >= 0) r->use[resource->first_use].previous = (i32)i;
        else r->loaded_resources++;
        r->use[i].next = (i32)resource->first_use;
        r->use[i].previous = NONE;
        resource->first_use = i;
    }
}

/* A class has no activity any more. */
static void leave(Run *r, i64 number)
{
    Class *c = r->class_ + number;
    r->end_due_s[number] = INFINITY;
    r->active_classes--;
    r->capped_classes -= c->cap < INFINITY;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        Resource *resource = r->resource + use->resource;
        if (use->next >= 0) r->use[use->next].previous = use->previous;
        if (use->previous >= 0) r->use[use->previous].next = use->next;
        else resource->first_use = use->next;
        r->loaded_resources -= resource->first_use < 0;
    }
    if (number >= r->fixed_classes) r->free_class[r->free_classes++] = number;
}

/* A class has `change` activities more; loads are whole, so they are added up without rounding. */
static void count_activities(Run *r, i64 number, i64 change)
{
    Class *c = r->class_ + number;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        double load = use->weight * (double)c->active, before = use->weight * (double)(c->active - change);
        r->resource[use->resource].full_load += load - before;
        r->other_loads += (load > 0 && load != 1) - (before > 0 && before != 1);
    }
    r->level[number] = c->active ? r->ending[c->first_ending].key : INFINITY;
    mark_changed(r, number);
}

static void join(Run *r, i64 number, i64 activity, double work)
{
    Class *c = r->class_ + number;
    if (!c->active) enter(r, number);
    serve(r, number);
    push(r->ending + c->first_ending, &c->active, (Entry){r->served[number] + work, activity, 0});
    count_activities(r, number, 1);
}

static void set_cap(Run *r, i64 number, double cap)
{
    Class *c = r->class_ + number;
    if (cap == c->cap) return;
    serve(r, number);
    c->cap = cap;
    if (c->active) mark_changed(r, number);
}

/* Remove the activities of a class that are done by now into `done`, of which there are `count`; how many then. */
static i64 finish_class(Run *r, i64 number, i64 count)
{
    Class *c = r->class_ + number;
    Entry *ending = r->ending + c->first_ending;
    i64 before = c->active;
    serve(r, number);
    double reach = r->served[number] + most(r->rate[number] * r->now_s, r->served[number]) * ROUNDING;
    while (c->active && ending[0].key <= reach) r->done[count++] = pop(ending, &c->active).tie;
    count_activities(r, number, c->active - before);
    if (!c->active) leave(r, number);
    return count;
}

/* The same of all classes, ascending; how many they are. */
static i64 finish(Run *r)
{
    double limit_s = r->now_s * (1 + ROUNDING);
    i64 count = 0;
    for (i64 c = 0; r->is_crowd && c < r->next_class; c++)
        if (r->end_due_s[c] <= limit_s) count = finish_class(r, c, count);
    while (!r->is_crowd && r->due_count && r->end_due_s[r->due[0]] <= limit_s) {
        i64 number = r->due[0];
        due_remove(r, number);
        count = finish_class(r, number, count);
    }
    sort(r->done, count);
    return count;
}

/* When the next activity ends. */
static double next_end_s(const Run *r)
{
    if (r->is_crowd) return r->crowd_due_s;
    return r->due_count ? r->end_due_s[r->due[0]] : INFINITY;
}

/* What a refresh is about: classes in `affected`, among them in `pending` those that are not held, of which there are
 * `unheld`, and those with a cap in `capped`; resources in `visited`, of which `loaded` are in use. before: the last
 * round of earlier ones. */
typedef struct { i64 classes, pending, unheld, capped, resources, loaded, before; int loads_differ; double load; } Share;

static void visit(Run *r, Share *s, i64 number)
{
    Resource *resource = r->resource + number;
    if (resource->seen == r->epoch) return;
    resource->seen = r->epoch;
    resource->left = resource->capacity;
    resource->load = resource->full_load;
    resource->ratio = STALE;
    r->visited[s->resources++] = number;
    s->loaded += resource->first_use >= 0;
}

/* Take a class in, and its resources. */
static void affect(Run *r, Share *s, i64 number)
{
    Class *c = r->class_ + number;
    if (!c->active || c->seen == r->epoch) return;
    c->seen = r->epoch;
    r->affected[s->classes++] = r->pending[s->pending++] = number;
    if (c->cap < INFINITY) r->capped[s->capped++] = number;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        double load = use->weight * (double)c->active;
        visit(r, s, use->resource);
        if (s->load < 0) s->load = load;
        s->loads_differ |= load != s->load;
    }
}

/* What has changed: resources, and classes without any. */
static Share find_changed(Run *r)
{
    Share s = {0, 0, 0, 0, 0, 0, r->round, 0, -1.0};
    r->epoch++;
    for (i64 i = 0; i < r->changed_count; i++) {
        i64 item = r->changed[i];
        if (item < r->resources) {
            r->resource[item].is_changed = 0;
            visit(r, &s, item);
        } else {
            r->class_[item - r->resources].is_changed = 0;
            affect(r, &s, item - r->resources);
        }
    }
    r->changed_count = 0;
    return s;
}

/* The active classes joined to what has changed through shared resources, and those resources. */
static void find_affected(Run *r, Share *s)
{
    for (i64 i = 0; i < s->resources; i++)
        for (i64 use = r->resource[r->visited[i]].first_use; use >= 0; use = r->use[use].next)
            affect(r, s, r->use[use].class_number);
}

#include "compiled_filling.h"

#include "compiled_crowd.h"

/* Give every affected class its new rate. Where they are many of those that have an end ahead, the heap of these is
 * made anew instead of changed one by one. */
static void refresh(Run *r)
{
    Share s = find_changed(r);
    if (may_be_crowd(r) && joins_all(r, &s)) { refresh_crowd(r, &s); return; }
    if (r->is_crowd) { r->is_crowd = 0; due_make(r); }
    find_affected(r, &s);
    int many = s.classes * 4 > r->due_count;
    for (i64 i = 0; i < s.classes; i++) serve(r, r->affected[i]);
    if (s.classes == 1) fill_one(r, r->affected[0]);
    else fill(r, &s);
    for (i64 i = 0; i < s.classes; i++) {
        i64 number = r->affected[i];
        Class *c = r->class_ + number;
        if (!(r->rate[number] > 0)) { due_remove(r, number); continue; }
        r->end_due_s[number] = r->now_s + most(r->level[number] - r->served[number], 0.0) / r->rate[number];
        i64 place = c->due_place < 0 ? r->due_count++ : c->due_place;
        if (many) due_put(r, place, number);
        else due_sift(r, place, number);
    }
    for (i64 i = many ? r->due_count / 2 - 1 : NONE; i >= 0; i--) due_sink(r, i, r->due[i]);
}
