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

static i64 visit(Run *r, i64 number, i64 count)
{
    Resource *resource = r->resource + number;
    if (resource->seen == r->epoch) return count;
    resource->seen = r->epoch;
    resource->left = resource->capacity;
    resource->load = 0.0;
    resource->ratio = STALE;
    r->visited[count] = number;
    return count + 1;
}

static i64 affect(Run *r, i64 number, i64 count)
{
    Class *c = r->class_ + number;
    if (!c->active || c->seen == r->epoch) return count;
    c->seen = r->epoch;
    c->is_settled = 0;
    r->affected[count] = number;
    return count + 1;
}

/* Into `affected` the active classes joined to what has changed through shared resources, into `visited` those
 * resources, *visited of them; how many classes they are. */
static i64 find_affected(Run *r, i64 *visited)
{
    i64 classes = 0, resources = 0;
    r->epoch++;
    for (i64 i = 0; i < r->changed_count; i++) {
        i64 item = r->changed[i];
        if (item < r->resources) {
            r->resource[item].is_changed = 0;
            resources = visit(r, item, resources);
        } else {
            r->class_[item - r->resources].is_changed = 0;
            classes = affect(r, item - r->resources, classes);
        }
    }
    r->changed_count = 0;
    for (i64 i = 0; i < resources; i++)
        for (i64 use = r->resource[r->visited[i]].first_use; use >= 0; use = r->use[use].next) {
            i64 known = classes;
            Class *c = r->class_ + r->use[use].class_number;
            classes = affect(r, r->use[use].class_number, classes);
            for (i64 k = c->first_use; classes > known && k < c->end_use; k++)
                resources = visit(r, r->use[k].resource, resources);
        }
    *visited = resources;
    return classes;
}

/* Add what the affected classes use to the loads of resources. List those with a cap; whether any loads differ. */
static int add_loads(Run *r, i64 classes, i64 *capped)
{
    double first = -1.0;
    int differ = 0;
    for (i64 i = 0; i < classes; i++) {
        Class *c = r->class_ + r->affected[i];
        if (c->cap < INFINITY) r->capped[(*capped)++] = r->affected[i];
        for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
            double load = use->weight * (double)c->active;
            r->resource[use->resource].load += load;
            if (first < 0) first = load;
            differ |= load != first;
        }
    }
    return differ;
}

/* The smallest share that a resource or a cap allows those not settled yet; drops what no longer matters. */
static double smallest_share(Run *r, i64 *capped, i64 *resources)
{
    double share = INFINITY;
    i64 loaded = 0, unsettled = 0;
    for (i64 i = 0; i < *resources; i++) {
        Resource *resource = r->resource + r->visited[i];
        if (!(resource->load > 0.0)) continue;
        if (resource->ratio == STALE) resource->ratio = resource->left / resource->load;
        share = least(share, resource->ratio);
        r->visited[loaded++] = r->visited[i];
    }
    for (i64 i = 0; i < *capped; i++) {
        Class *c = r->class_ + r->capped[i];
        if (c->is_settled) continue;
        share = least(share, c->cap);
        r->capped[unsettled++] = r->capped[i];
    }
    *resources = loaded;
    *capped = unsettled;
    return share;
}

static i64 hold(Run *r, i64 number, i64 count)
{
    Class *c = r->class_ + number;
    if (c->is_settled) return count;
    c->is_settled = 1;
    r->batch[count] = (Entry){0.0, r->ending[c->first_ending].tie, number};
    return count + 1;
}

/* Into `batch` the classes that can go no faster than `limit`: their cap or a resource of theirs holds them. */
static i64 find_held(Run *r, double limit, i64 capped, i64 resources)
{
    i64 count = 0;
    for (i64 i = 0; i < capped; i++)
        if (r->class_[r->capped[i]].cap <= limit) count = hold(r, r->capped[i], count);
    for (i64 i = 0; i < resources; i++)
        if (r->resource[r->visited[i]].ratio <= limit)
            for (i64 use = r->resource[r->visited[i]].first_use; use >= 0; use = r->use[use].next)
                count = hold(r, r->use[use].class_number, count);
    return count;
}

/* Fix the rate of a class, and take what it uses from its resources. */
static void settle(Run *r, Class *c, double share)
{
    c->rate = share;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++) {
        Resource *resource = r->resource + use->resource;
        double load = use->weight * (double)c->active;
        resource->left = most(resource->left - load * share, 0.0);
        resource->load -= load;
        resource->ratio = STALE;
    }
}

/* Max-min fair rates of the classes in `affected`, which share the resources in `visited` with no others. In each
 * round those are settled that are held at the smallest share, by their first activity: the order of subtraction
 * counts only where loads differ. */
static void fill(Run *r, i64 classes, i64 resources)
{
    i64 capped = 0;
    int loads_differ = add_loads(r, classes, &capped);
    for (i64 left = classes, held; left; left -= held) {
        double share = smallest_share(r, &capped, &resources);
        held = find_held(r, share * (1 + ROUNDING), capped, resources);
        if (loads_differ) qsort(r->batch, (size_t)held, sizeof *r->batch, by_tie);
        for (i64 i = 0; i < held; i++) settle(r, r->class_ + r->batch[i].event, share);
        r->effort += held + resources;
    }
}

/* The rate of a class that shares its resources with no others. */
static void fill_one(Run *r, Class *c)
{
    c->rate = c->cap;
    for (Use *use = r->use + c->first_use; use < r->use + c->end_use; use++)
        c->rate = least(c->rate, r->resource[use->resource].capacity / (use->weight * (double)c->active));
}

/* Give every affected class its new rate. */
static void refresh(Run *r)
{
    i64 resources, classes = find_affected(r, &resources);
    for (i64 i = 0; i < classes; i++) serve(r, r->class_ + r->affected[i]);
    if (classes == 1) fill_one(r, r->class_ + r->affected[0]);
    else fill(r, classes, resources);
    for (i64 i = 0; i < classes; i++) {
        Class *c = r->class_ + r->affected[i];
        if (c->rate > 0) {
            c->due_s = r->now_s + most(r->ending[c->first_ending].key - c->served, 0.0) / c->rate;
            due_sift(r, c->due_place < 0 ? r->due_count++ : c->due_place, r->affected[i]);
        } else due_remove(r, r->affected[i]);
    }
}
