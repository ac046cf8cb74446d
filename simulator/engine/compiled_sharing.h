/* Sharing in the compiled engine: max-min fair, as simulator's max_min.py does it. A class takes part with its number
 * of active activities; a change costs time in the resources whose share, and the classes whose rate, is another. */

static void serve(Run *r, i64 number)
{
    if (r->class_[number].active) r->served[number] += r->rate[number] * (r->now_s - r->since_s[number]);
    r->since_s[number] = r->now_s;
}

enum { RATE = 1, ACTIVITIES = 2 }; /* what of a stale class may be another */

/* A class gets its rate, and the time of its next end, by `refresh`. */
static void set_stale(Run *r, i64 number, i32 what)
{
    if (!r->class_[number].stale) r->stale[r->stale_count++] = number;
    r->class_[number].stale |= what;
}

/* A resource gets its share by `refresh`. */
static void mark(Run *r, i64 number)
{
    Resource *resource = r->resource + number;
    if (!resource->is_changed) r->changed[r->changed_count++] = number;
    resource->is_changed = 1;
}

/* A class has its first activity. */
static void enter(Run *r, i64 number)
{
    Class *c = r->class_ + number;
    i64 uses = c->end_use - c->first_use;
    int is_pair = uses == 2 && c->cap == INFINITY;
    r->served[number] = 0.0;
    r->wide_classes += uses > WIDE;
    for (i32 i = c->first_use; i < c->end_use; i++) {
        Resource *resource = r->resource + r->use[i].resource;
        i32 other = is_pair ? r->use[c->first_use + c->end_use - 1 - i].resource : NONE;
        r->use[i].place = (i32)(resource->first_user + resource->users++);
        r->user[r->use[i].place] = (User){0.0, (i32)number, other, i};
    }
}

/* A class has no activity any more. */
static void leave(Run *r, i64 number)
{
    Class *c = r->class_ + number;
    r->wide_classes -= c->end_use - c->first_use > WIDE;
    for (const Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        Resource *resource = r->resource + use->resource;
        User last = r->user[resource->first_user + --resource->users];
        r->user[use->place] = last;
        r->use[last.use].place = use->place;
    }
    if (number >= r->fixed_classes) r->free_class[r->free_classes++] = number;
}

/* The number of a class's activities has changed; loads are whole, so they are added up without rounding. */
static void count_activities(Run *r, i64 number)
{
    Class *c = r->class_ + number;
    for (const Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        User *user = r->user + use->place;
        double load = use->weight * (double)c->active;
        r->resource[use->resource].load += load - user->load;
        user->load = load;
        mark(r, use->resource);
    }
    set_stale(r, number, ACTIVITIES);
}

static void join(Run *r, i64 number, i64 activity, double work)
{
    Class *c = r->class_ + number;
    if (!c->active) enter(r, number);
    serve(r, number);
    push(r->ending + c->first_ending, &c->active, (Entry){key_of(r->served[number] + work), activity, 0});
    count_activities(r, number);
}

static void set_cap(Run *r, i64 number, double cap)
{
    Class *c = r->class_ + number;
    if (cap == c->cap) return;
    serve(r, number);
    c->cap = cap;
    if (!c->active) return;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) mark(r, use->resource);
    set_stale(r, number, ACTIVITIES);
}

/* Remove the activities of a class that are done by now into `done`, of which there are `count`; how many then. */
static i64 finish_class(Run *r, i64 number, i64 count)
{
    Class *c = r->class_ + number;
    Entry *ending = r->ending + c->first_ending;
    serve(r, number);
    double reach = r->served[number] + most(r->rate[number] * r->now_s, r->served[number]) * ROUNDING;
    while (c->active && value_of(ending[0].key) <= reach) r->done[count++] = pop(ending, &c->active).tie;
    count_activities(r, number);
    if (!c->active) leave(r, number);
    return count;
}

/* The same of all classes, ascending; how many they are. */
static i64 finish(Run *r)
{
    double limit_s = r->now_s * (1 + ROUNDING);
    i64 count = 0;
    while (r->first_end_s <= limit_s) {
        i64 number = first_to_end(r);
        set_end(r, number, INFINITY);
        count = finish_class(r, number, count);
    }
    sort(r->done, count);
    return count;
}

static double rate_of(const Run *r, const Class *c)
{
    double rate = c->cap;
    for (const Use *use = r->use + c->first_use; use < r->use + c->end_use; use++)
        rate = least(rate, r->share[use->resource]);
    return rate;
}

#include "compiled_shares.h"

#include "compiled_filling.h"

/* Give every class its new rate, and those of another rate or of other activities their next end. */
static void refresh(Run *r)
{
    if (r->wide_classes) fill(r);
    else settle(r);
    for (i64 i = 0; i < r->stale_count; i++) {
        i64 number = r->stale[i];
        Class *c = r->class_ + number;
        i32 what = c->stale;
        c->stale = 0;
        if (!c->active) continue;
        double rate = rate_of(r, c);
        if (rate == r->rate[number] && what == RATE) continue;
        serve(r, number);
        r->rate[number] = rate;
        double left = most(value_of(r->ending[c->first_ending].key) - r->served[number], 0.0);
        set_end(r, number, rate > 0 ? r->now_s + left / rate : INFINITY);
    }
    r->stale_count = 0;
}
