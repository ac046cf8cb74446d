/* Shares by progressive filling, of all resources joined to those that have changed: where classes have so many uses
 * that to follow changes from one to the other takes longer. Rates of all classes rise together until a resource is
 * full; its users are held, and the rest go on. */

/* Resources in `visited`, classes that are not held yet, the last of them, and those with a cap in `capped`. */
typedef struct { i64 resources, unheld, last, capped; } Filling;

static void visit(Run *r, Filling *f, i64 number)
{
    Resource *resource = r->resource + number;
    if (resource->seen == r->epoch) return;
    resource->seen = r->epoch;
    resource->is_full = resource->is_changed = 0;
    r->share[number] = resource->users ? resource->capacity / resource->load : INFINITY;
    r->visited[f->resources++] = number;
}

/* The active classes joined to what has changed through shared resources, and those resources. */
static Filling find_joined(Run *r)
{
    Filling f = {0, 0, NONE, 0};
    r->epoch++;
    for (i64 i = 0; i < r->changed_count; i++) visit(r, &f, r->changed[i]);
    r->changed_count = 0;
    for (i64 i = 0; i < f.resources; i++) {
        const Resource *resource = r->resource + r->visited[i];
        for (i64 k = resource->first_user; k < resource->first_user + resource->users; k++) {
            i64 number = r->user[k].class_number;
            Class *c = r->class_ + number;
            if (c->seen == r->epoch) continue;
            c->seen = r->epoch;
            c->held_at = INFINITY;
            f.unheld++;
            f.last = number;
            set_stale(r, number, RATE);
            if (c->cap < INFINITY) r->capped[f.capped++] = number;
            for (i64 use = c->first_use; use < c->end_use; use++) visit(r, &f, r->use[use].resource);
        }
    }
    return f;
}

/* The smallest share of a resource, or cap, of those not held; drops what no longer matters. */
static double smallest_share(Run *r, Filling *f)
{
    double share = INFINITY;
    i64 resources = 0, capped = 0;
    for (i64 i = 0; i < f->resources; i++) {
        i64 number = r->visited[i];
        if (r->resource[number].is_full || r->share[number] == INFINITY) continue;
        share = least(share, r->share[number]);
        r->visited[resources++] = number;
    }
    for (i64 i = 0; i < f->capped; i++) {
        const Class *c = r->class_ + r->capped[i];
        if (c->held_at < INFINITY) continue;
        share = least(share, c->cap);
        r->capped[capped++] = r->capped[i];
    }
    f->resources = resources;
    f->capped = capped;
    return share;
}

static void hold(Run *r, Filling *f, i64 number, double share)
{
    Class *c = r->class_ + number;
    if (c->held_at < INFINITY) return;
    c->held_at = share;
    f->unheld--;
    for (i64 use = c->first_use; use < c->end_use; use++) r->resource[r->use[use].resource].is_changed = 1;
}

/* The share of a resource as its users are held so far. */
static double share_beside_held(Run *r, const Resource *resource)
{
    const User *user = r->user + resource->first_user;
    double lowest = INFINITY;
    for (i64 i = 0; i < resource->users; i++) {
        double rate = r->class_[user[i].class_number].held_at;
        r->limit[i] = (Limit){rate, user[i].load};
        lowest = least(lowest, rate);
    }
    return share_among(resource, r->limit, lowest);
}

/* The shares beside a class that is alone: full is what limits it. */
static void fill_one(Run *r, const Class *c)
{
    double rate = rate_of(r, c);
    for (i64 use = c->first_use; use < c->end_use; use++) {
        double *share = r->share + r->use[use].resource;
        *share = rate < *share ? INFINITY : *share;
    }
}

static void fill(Run *r)
{
    Filling f = find_joined(r);
    if (f.unheld == 1) { fill_one(r, r->class_ + f.last); return; }
    while (f.unheld) {
        double share = smallest_share(r, &f);
        r->effort += f.resources + f.capped;
        for (i64 i = 0; i < f.capped; i++)
            if (r->class_[r->capped[i]].cap <= share) hold(r, &f, r->capped[i], share);
        for (i64 i = 0; i < f.resources; i++) {
            Resource *resource = r->resource + r->visited[i];
            if (r->share[r->visited[i]] != share) continue;
            resource->is_full = 1;
            for (i64 k = resource->first_user; k < resource->first_user + resource->users; k++)
                hold(r, &f, r->user[k].class_number, share);
        }
        for (i64 i = 0; i < f.resources; i++) {
            Resource *resource = r->resource + r->visited[i];
            if (resource->is_changed && !resource->is_full) r->share[r->visited[i]] = share_beside_held(r, resource);
            resource->is_changed = 0;
        }
    }
}
