/* Progressive filling: the rates of classes that a refresh is about. */

/* The smallest share that a resource or a cap allows those not settled yet; drops what no longer matters. */
static double smallest_share(Run *r, Share *s)
{
    double share = INFINITY;
    i64 loaded = 0, unsettled = 0;
    for (i64 i = 0; i < s->resources; i++) {
        Resource *resource = r->resource + r->visited[i];
        if (!(resource->load > 0.0)) continue;
        if (resource->ratio == STALE) resource->ratio = resource->left / resource->load;
        share = least(share, resource->ratio);
        r->visited[loaded++] = r->visited[i];
    }
    for (i64 i = 0; i < s->capped; i++) {
        Class *c = r->class_ + r->capped[i];
        if (c->held_in > s->before) continue;
        share = least(share, c->cap);
        r->capped[unsettled++] = r->capped[i];
    }
    s->resources = loaded;
    s->capped = unsettled;
    return share;
}

/* Whether a class is held in this round: at its cap, or on a resource that is full. */
static int is_held(Run *r, const Share *s, i64 number, double limit)
{
    Class *c = r->class_ + number;
    if (c->held_in > s->before || c->passed_in == r->round) return c->held_in == r->round;
    int held = c->cap <= limit;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++)
        held |= !(r->resource[use->resource].load > 0.0);
    if (held) c->held_in = r->round;
    else c->passed_in = r->round;
    return held;
}

static Entry load_of(const Run *r, const Use *use)
{
    const Class *c = r->class_ + use->class_number;
    return (Entry){use->weight * (double)c->active, r->ending[c->first_ending].tie, use->class_number};
}

static void take(Resource *resource, double load, double share)
{
    resource->left = most(resource->left - load * share, 0.0);
    resource->load -= load;
    resource->ratio = STALE;
}

/* A round in which few are not held: go through what is left of resources, and find there who is held and who not.
 * Each is taken away by its first activity: the order of subtraction counts where loads differ. */
static void pass_by_rest(Run *r, Share *s, double share, double limit)
{
    for (i64 i = 0; i < s->pending; i++)
        if (r->class_[r->pending[i]].held_in <= s->before) r->rate[r->pending[i]] = share;
    s->pending = 0;
    for (i64 i = 0; i < s->capped; i++)
        if (!is_held(r, s, r->capped[i], limit)) r->pending[s->pending++] = r->capped[i];
    for (i64 i = 0; i < s->resources; i++) {
        Resource *resource = r->resource + r->visited[i];
        i64 held = 0;
        for (i64 use = resource->first_use; use >= 0; use = r->use[use].next) {
            i64 number = r->use[use].class_number;
            int known = r->class_[number].passed_in == r->round;
            if (is_held(r, s, number, limit)) r->batch[held++] = load_of(r, r->use + use);
            else if (!known && r->class_[number].passed_in == r->round) r->pending[s->pending++] = number;
        }
        if (s->loads_differ) qsort(r->batch, (size_t)held, sizeof *r->batch, by_tie);
        for (i64 k = 0; k < held; k++) take(resource, r->batch[k].key, share);
    }
    s->unheld = s->pending;
}

/* A round in which many are not held: go through full resources, all of whose classes are. */
static void pass_by_full(Run *r, Share *s, i64 full, double share, double limit)
{
    i64 held = 0;
    for (i64 i = 0; i < s->capped; i++)
        if (r->class_[r->capped[i]].held_in <= s->before && is_held(r, s, r->capped[i], limit))
            r->batch[held++] = (Entry){0.0, r->ending[r->class_[r->capped[i]].first_ending].tie, r->capped[i]};
    for (i64 i = s->resources; i < full; i++)
        for (i64 use = r->resource[r->visited[i]].first_use; use >= 0; use = r->use[use].next) {
            Class *c = r->class_ + r->use[use].class_number;
            if (c->held_in > s->before) continue;
            c->held_in = r->round;
            r->batch[held++] = load_of(r, r->use + use);
        }
    if (s->loads_differ) qsort(r->batch, (size_t)held, sizeof *r->batch, by_tie);
    for (i64 i = 0; i < held; i++) {
        Class *c = r->class_ + r->batch[i].event;
        r->rate[r->batch[i].event] = share;
        for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++)
            if (r->resource[use->resource].load > 0.0)
                take(r->resource + use->resource, use->weight * (double)c->active, share);
    }
    s->unheld -= held;
}

/* Max-min fair rates of the classes in `pending`, which share the resources in `visited` with no others. In each round
 * those are held that can go no faster than the smallest share. */
static void fill(Run *r, Share *s)
{
    for (s->unheld = s->pending; s->unheld;) {
        double share = smallest_share(r, s), limit = share * (1 + ROUNDING), on_full = 0.0, on_rest = 0.0;
        i64 some = 0, all = s->resources;
        r->round++;
        r->effort += s->unheld + all;
        for (i64 i = 0; i < all; i++) { /* those that are full go last */
            i64 number = r->visited[i];
            Resource *resource = r->resource + number;
            if (resource->ratio <= limit) { on_full += resource->load; resource->load = 0.0; }
            else { on_rest += resource->load; r->visited[i] = r->visited[some]; r->visited[some++] = number; }
        }
        s->resources = some;
        if (on_rest < on_full) pass_by_rest(r, s, share, limit);
        else pass_by_full(r, s, all, share, limit);
    }
}

/* The rate of a class that shares its resources with no others. */
static void fill_one(Run *r, i64 number)
{
    Class *c = r->class_ + number;
    r->rate[number] = c->cap;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++)
        r->rate[number] = least(r->rate[number], r->resource[use->resource].capacity / (use->weight * (double)c->active));
}
