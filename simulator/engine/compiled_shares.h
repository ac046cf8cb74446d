/* Shares of resources: the rate of those users whom a resource limits, INFINITY where others limit them all to less. A
 * share follows from the load and from the lower rates that users are limited to elsewhere, so that a change is followed
 * from resource to resource only as far as it makes a difference. There is but one solution, in whatever order it is
 * found. */

/* How fast a class could go but for one of its resources. */
static double limit_of(const Run *r, const User *user)
{
    if (user->other >= 0) return r->share[user->other];
    const Class *c = r->class_ + user->class_number;
    double limit = c->cap;
    for (i64 use = c->first_use; use < c->end_use; use++)
        if (use != user->use) limit = least(limit, r->share[r->use[use].resource]);
    return limit;
}

/* What users leave who are limited to less, shared among the others, until none of these is limited to less than that.
 * What a rate takes is rounded as the capacity is, so that sums of it are exact in any order. Without branches on what
 * users are limited to, which would be guessed wrongly. */
static double share_among(const Resource *resource, const Limit *limit, double lowest)
{
    double capacity = resource->capacity, load = resource->load, share = capacity / load;
    while (lowest < share) {
        double taken = 0.0, held = 0.0;
        lowest = INFINITY;
        for (i64 i = 0; i < resource->users; i++) {
            int below = limit[i].rate < share;
            double load_below = below ? limit[i].load : 0.0, rate_below = below ? limit[i].rate : 0.0;
            taken += load_below * (capacity + rate_below - capacity);
            held += load_below;
            lowest = least(lowest, below ? INFINITY : limit[i].rate);
        }
        if (held == load) return INFINITY;
        share = most(share, most(capacity - taken, 0.0) / (load - held));
    }
    return share;
}

static double share_of(Run *r, const Resource *resource)
{
    const User *user = r->user + resource->first_user;
    double lowest = INFINITY;
    if (!resource->users) return INFINITY;
    for (i64 i = 0; i < resource->users; i++) {
        double rate = limit_of(r, user + i);
        r->limit[i] = (Limit){rate, user[i].load};
        lowest = least(lowest, rate);
    }
    return share_among(resource, r->limit, lowest);
}

/* A share depends on lower rates only: whether one may be another, where a limit changes that is at least `lower`. */
static void follow(Run *r, i64 number, double lower)
{
    Resource *resource = r->resource + number;
    if (!(lower < r->share[number]) || resource->is_changed) return;
    resource->is_changed = 1;
    push(r->followed, &r->followed_count, (Entry){key_of(r->share[number]), number, 0});
}

/* Whether the share of a resource with one user, who is limited to this, is what it was. */
static int stays_alone(const Run *r, i64 number, double limit)
{
    const Resource *resource = r->resource + number;
    if (resource->users != 1) return 0;
    double share = resource->capacity / resource->load;
    return r->share[number] == (limit < share ? INFINITY : share);
}

static void set_share(Run *r, i64 number, double share)
{
    const Resource *resource = r->resource + number;
    double lower = least(share, r->share[number]);
    r->share[number] = share;
    for (const User *user = r->user + resource->first_user, *end = user + resource->users; user < end; user++) {
        if (least(share, limit_of(r, user)) != r->rate[user->class_number]) set_stale(r, user->class_number, RATE);
        if (user->other >= 0) {
            if (!stays_alone(r, user->other, share)) follow(r, user->other, lower);
            continue;
        }
        const Class *c = r->class_ + user->class_number;
        for (i64 use = c->first_use; use < c->end_use; use++)
            if (use != user->use) follow(r, r->use[use].resource, lower);
    }
}

static void find_share(Run *r, i64 number)
{
    Resource *resource = r->resource + number;
    double share = share_of(r, resource);
    r->effort += 1 + resource->users;
    resource->is_changed = 0;
    if (share != r->share[number]) set_share(r, number, share);
}

/* Find the shares of all resources that may have another. After those that have changed, the lowest so far comes first:
 * in this order few are found twice. */
static void settle(Run *r)
{
    for (i64 i = 0; i < r->changed_count; i++) find_share(r, r->changed[i]);
    r->changed_count = 0;
    while (r->followed_count) find_share(r, pop(r->followed, &r->followed_count).tie);
}
