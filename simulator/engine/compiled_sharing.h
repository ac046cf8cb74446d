/* Sharing in the compiled engine: max-min fair, by progressive filling, as simulator's sharing.py does it. A class takes
 * part with its number of active activities; a change costs time in the classes joined to it through resources. */

static void serve(Run *r, Class *c)
{
    if (c->active) c->served += c->rate * (r->now_s - c->since_s);
    c->since_s = r->now_s;
}

/* What is to be shared anew by `refresh`: the resources of a class, or, where it has none, the class itself. */
static void mark_changed(Run *r, Class *c)
{
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        Resource *resource = r->resource + use->resource;
        if (!resource->is_changed) { resource->is_changed = 1; r->changed[r->changed_count++] = use->resource; }
    }
    if (c->first_use == c->end_use && !c->is_changed) {
        c->is_changed = 1;
        r->changed[r->changed_count++] = r->resources + (c - r->class_);
    }
}

static void join(Run *r, Class *c, i64 activity, double work)
{
    serve(r, c);
    push(r->ending + c->first_ending, &c->active, (Entry){c->served + work, activity, 0});
    for (i64 i = c->first_use; c->active == 1 && i < c->end_use; i++) {
        Resource *resource = r->resource + r->use[i].resource;
        if (resource->first_use >= 0) r->use[resource->first_use].previous = i;
        r->use[i].next = resource->first_use;
        r->use[i].previous = NONE;
        resource->first_use = i;
    }
    mark_changed(r, c);
}

static void leave(Run *r, Class *c)
{
    c->served = 0.0;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        if (use->next >= 0) r->use[use->next].previous = use->previous;
        if (use->previous >= 0) r->use[use->previous].next = use->next;
        else r->resource[use->resource].first_use = use->next;
    }
    if (c - r->class_ >= r->fixed_classes) r->free_class[r->free_classes++] = c - r->class_;
}

static void set_cap(Run *r, Class *c, double cap)
{
    if (cap == c->cap) return;
    serve(r, c);
    c->cap = cap;
    if (c->active) mark_changed(r, c);
}

/* Remove the activities that are done by now into `done`, ascending; how many they are. */
static i64 finish(Run *r)
{
    i64 count = 0;
    while (r->due_count && r->class_[r->due[0]].due_s <= r->now_s * (1 + ROUNDING)) {
        Class *c = r->class_ + r->due[0];
        Entry *ending = r->ending + c->first_ending;
        due_remove(r, r->due[0]);
        serve(r, c);
        double reach = c->served + most(c->rate * r->now_s, c->served) * ROUNDING;
        while (c->active && ending[0].key <= reach) r->done[count++] = pop(ending, &c->active).tie;
        mark_changed(r, c);
        if (!c->active) leave(r, c);
    }
    sort(r->done, count);
    return count;
}

/* What a refresh is about: classes in `affected` and those with a cap in `capped`, resources in `visited`. */
typedef struct { i64 classes, capped, resources; int loads_differ; double load; } Share;

static void visit(Run *r, Share *s, i64 number)
{
    Resource *resource = r->resource + number;
    if (resource->seen == r->epoch) return;
    resource->seen = r->epoch;
    resource->left = resource->capacity;
    resource->load = 0.0;
    resource->ratio = STALE;
    r->visited[s->resources++] = number;
}

/* Take a class in: served until now, its load added to its resources. Loads are whole, so their order is no matter. */
static void affect(Run *r, Share *s, i64 number)
{
    Class *c = r->class_ + number;
    if (!c->active || c->seen == r->epoch) return;
    c->seen = r->epoch;
    c->is_settled = 0;
    serve(r, c);
    r->affected[s->classes++] = number;
    if (c->cap < INFINITY) r->capped[s->capped++] = number;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        double load = use->weight * (double)c->active;
        visit(r, s, use->resource);
        r->resource[use->resource].load += load;
        if (s->load < 0) s->load = load;
        s->loads_differ |= load != s->load;
    }
}

/* The active classes joined to what has changed through shared resources, and those resources. */
static Share find_affected(Run *r)
{
    Share s = {0, 0, 0, 0, -1.0};
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
    for (i64 i = 0; i < s.resources; i++)
        for (i64 use = r->resource[r->visited[i]].first_use; use >= 0; use = r->use[use].next)
            affect(r, &s, r->use[use].class_number);
    return s;
}

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
        if (c->is_settled) continue;
        share = least(share, c->cap);
        r->capped[unsettled++] = r->capped[i];
    }
    s->resources = loaded;
    s->capped = unsettled;
    return share;
}

/* Fix the rate of a class, and take what it uses from those of its resources that have something left for others. */
static void settle(Run *r, Class *c, double share)
{
    c->rate = share;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        Resource *resource = r->resource + use->resource;
        if (!(resource->load > 0.0)) continue;
        double load = use->weight * (double)c->active;
        resource->left = most(resource->left - load * share, 0.0);
        resource->load -= load;
        resource->ratio = STALE;
    }
}

/* A class that can go no faster: settle it now, or, where the order of subtraction counts, when all are known. */
static void hold(Run *r, const Share *s, i64 number, double share, i64 *held)
{
    Class *c = r->class_ + number;
    if (c->is_settled) return;
    c->is_settled = 1;
    if (s->loads_differ) r->batch[*held] = (Entry){0.0, r->ending[c->first_ending].tie, number};
    else settle(r, c, share);
    ++*held;
}

/* Max-min fair rates of the classes in `affected`, which share the resources in `visited` with no others. In each
 * round those are settled that are held at the smallest share, by their first activity: the order of subtraction
 * counts only where loads differ. All classes on a full resource are, so that it is done with. */
static void fill(Run *r, Share *s)
{
    for (i64 left = s->classes, held; left; left -= held) {
        double share = smallest_share(r, s), limit = share * (1 + ROUNDING);
        i64 some = 0;
        held = 0;
        for (i64 i = 0; i < s->resources; i++) { /* those that are full go last */
            i64 number = r->visited[i];
            if (r->resource[number].ratio <= limit) r->resource[number].load = 0.0;
            else { r->visited[i] = r->visited[some]; r->visited[some++] = number; }
        }
        for (i64 i = 0; i < s->capped; i++)
            if (r->class_[r->capped[i]].cap <= limit) hold(r, s, r->capped[i], share, &held);
        for (i64 i = some; i < s->resources; i++)
            for (i64 use = r->resource[r->visited[i]].first_use; use >= 0; use = r->use[use].next)
                hold(r, s, r->use[use].class_number, share, &held);
        r->effort += held + s->resources;
        s->resources = some;
        if (!s->loads_differ) continue;
        qsort(r->batch, (size_t)held, sizeof *r->batch, by_tie);
        for (i64 i = 0; i < held; i++) settle(r, r->class_ + r->batch[i].event, share);
    }
}

/* The rate of a class that shares its resources with no others. */
static void fill_one(Run *r, Class *c)
{
    c->rate = c->cap;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++)
        c->rate = least(c->rate, r->resource[use->resource].capacity / (use->weight * (double)c->active));
}

/* Give every affected class its new rate. Where they are many of those that have an end ahead, the heap of these is
 * made anew instead of changed one by one. */
static void refresh(Run *r)
{
    Share s = find_affected(r);
    int many = s.classes * 4 > r->due_count;
    if (s.classes == 1) fill_one(r, r->class_ + r->affected[0]);
    else fill(r, &s);
    for (i64 i = 0; i < s.classes; i++) {
        Class *c = r->class_ + r->affected[i];
        if (!(c->rate > 0)) { due_remove(r, r->affected[i]); continue; }
        c->due_s = r->now_s + most(r->ending[c->first_ending].key - c->served, 0.0) / c->rate;
        i64 place = c->due_place < 0 ? r->due_count++ : c->due_place;
        if (many) due_put(r, place, r->affected[i]);
        else due_sift(r, place, r->affected[i]);
    }
    for (i64 i = many ? r->due_count / 2 - 1 : NONE; i >= 0; i--) due_sink(r, i, r->due[i]);
}
