/* The compiled engine. Same columns, same order of events and of arithmetic as the reference engine beside it
 * (reference.py and what it imports, sharing.py), so that start and end of every task agree bit for bit.
 * Compile with -ffp-contract=off. No memory is allocated here and nothing is global: all arrays belong to the
 * caller (compiled.py), who has checked every index. least and most keep their first argument where the two are
 * equal, as Python's min and max do. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define ROUNDING 1e-12   /* activities that would end within this fraction of the current time end together */
#define STALE (-1.0)     /* a ratio that has to be found again; true ones are at least 0 */
#define NONE (-1)        /* the end of a list */
#define NOT_WAITING (-2) /* for a turn */

typedef int64_t i64;
typedef int32_t i32;

enum { COMPUTE_ENDED, COMPUTE_STARTS, TURN_OVER, LATENCY_OVER, STAGES }; /* an event is task * STAGES + stage */

/* compiled.py reads names and types of all fields below from here. */

/* An entry of a queue by (key, tie): of a timer (time, order of setting, event), of a device (priority, task), of a
 * class (level at which an activity ends, activity). */
typedef struct { double key; i64 tie, event; } Entry;

/* One cache line. Its successors lie from first_successor to that of the next task. */
typedef struct {
    double delay_s, work, start_s, end_s, priority;
    i32 device, route, activity_class, waits, first_successor, next_in_line;
} Task;

typedef struct { i64 first_ready, ready_count, is_idle, is_woken, in_flight; } Device;

/* Activities that use the same resources: their rate, what each has been served, until when; their queue by level. */
typedef struct {
    double cap, rate, served, since_s, due_s;
    i64 first_use, end_use, first_ending, active, due_place, seen, is_settled, is_changed;
} Class;

/* A class on a resource, in the list of that resource while activities of the class are active. */
typedef struct { double weight; i64 resource, class_number, next, previous; } Use;

typedef struct { double capacity, left, load, ratio; i64 first_use, seen, is_changed; } Resource;

typedef struct { i64 first, last; } Line;

typedef struct {
    /* What is run: see Columns. Classes from fixed_classes on are for core work, taken and given back as it comes. */
    i64 tasks, devices, resources, fixed_classes, has_lines, has_overlap, has_turns, has_cores;
    double overlap_rate;
    const i64 *device_of_task, *route, *priority, *activity_class, *dependency_start, *dependencies;
    const i64 *line_of_route, *touched_start, *touched, *neighbour_start, *neighbour, *core_start, *core_device;
    const double *delay_s, *work, *bytes, *turn_s, *core_s_per_byte, *alone_s;

    /* The clock: timers, the events of this instant from head to tail, the next end of an activity. */
    double now_s, due_s;
    i64 order, timers, head, tail, wake_allowed, wake_requested, effort;
    Entry *timer;
    i64 *instant;

    Task *task;
    Device *device;
    Entry *ready;
    i64 ready_transfers, woken_count;
    i64 *ready_transfer, *woken;
    i32 *successor;

    /* due: classes with an end ahead, earliest first. changed: resources, or classes without any (resources + c). */
    Class *class_;
    Use *use;
    Resource *resource;
    Entry *ending, *batch;
    i64 due_count, changed_count, epoch;
    i64 *due, *changed, *visited, *affected, *capped, *done;

    /* Only where the runtime asks for it. */
    Line *line;
    i64 turn_first, turn_last, core_works, free_classes, next_class;
    i64 *turn_next, *turn_previous, *parts, *core_task, *free_class;
} Run;

static double least(double a, double b) { return b < a ? b : a; }
static double most(double a, double b) { return b > a ? b : a; }

/* ---- queues ---- */

static int before(const Entry *a, const Entry *b) { return a->key < b->key || (a->key == b->key && a->tie < b->tie); }

static void push(Entry *heap, i64 *count, Entry entry)
{
    i64 i = (*count)++;
    for (; i > 0 && before(&entry, &heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static Entry pop(Entry *heap, i64 *count)
{
    Entry top = heap[0], last = heap[--*count];
    i64 i = 0;
    for (i64 child; (child = 2 * i + 1) < *count; i = child) {
        if (child + 1 < *count && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static int ascending(const void *a, const void *b)
{
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x > y) - (x < y);
}

static void sort(i64 *values, i64 count)
{
    for (i64 i = 1; i < count; i++)
        if (values[i] < values[i - 1]) { qsort(values, (size_t)count, sizeof *values, ascending); return; }
}

static int by_tie(const void *a, const void *b)
{
    i64 x = ((const Entry *)a)->tie, y = ((const Entry *)b)->tie;
    return (x > y) - (x < y);
}

/* Classes by the time at which their next activity ends: a heap in which each knows its place. */
static void due_put(Run *r, i64 place, i64 c) { r->due[place] = c; r->class_[c].due_place = place; }

static void due_sift(Run *r, i64 i, i64 c)
{
    double due_s = r->class_[c].due_s;
    for (; i > 0 && due_s < r->class_[r->due[(i - 1) / 2]].due_s; i = (i - 1) / 2) due_put(r, i, r->due[(i - 1) / 2]);
    for (i64 child; (child = 2 * i + 1) < r->due_count; i = child) {
        if (child + 1 < r->due_count && r->class_[r->due[child + 1]].due_s < r->class_[r->due[child]].due_s) child++;
        if (!(r->class_[r->due[child]].due_s < due_s)) break;
        due_put(r, i, r->due[child]);
    }
    due_put(r, i, c);
}

static void due_remove(Run *r, i64 c)
{
    i64 place = r->class_[c].due_place;
    if (place < 0) return;
    i64 last = r->due[--r->due_count];
    if (last != c) due_sift(r, place, last);
    r->class_[c].due_place = NONE;
}

/* ---- time ---- */

static void request_wake(Run *r)
{
    if (r->wake_allowed) { r->wake_allowed = 0; r->wake_requested = 1; }
}

static void set_timer(Run *r, double delay_s, i64 event)
{
    double at_s = r->now_s + delay_s;
    if (at_s == r->now_s) r->instant[r->tail++] = event;
    else push(r->timer, &r->timers, (Entry){at_s, r->order++, event});
}

/* ---- sharing: max-min fair, by progressive filling ---- */

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

/* ---- devices ---- */

static void wake_device(Run *r, i64 device)
{
    if (!r->device[device].is_woken) { r->device[device].is_woken = 1; r->woken[r->woken_count++] = device; }
    request_wake(r);
}

static void become_idle(Run *r, i64 device)
{
    r->device[device].is_idle = 1;
    if (r->device[device].ready_count) wake_device(r, device);
    else if (r->turn_first >= 0) request_wake(r);
}

/* Give every idle device that has been woken its next task. */
static void hand_over(Run *r)
{
    sort(r->woken, r->woken_count);
    for (i64 i = 0; i < r->woken_count; i++) {
        Device *device = r->device + r->woken[i];
        device->is_woken = 0;
        if (!device->is_idle || !device->ready_count) continue;
        device->is_idle = 0;
        r->instant[r->tail++] = pop(r->ready + device->first_ready, &device->ready_count).tie * STAGES + COMPUTE_STARTS;
    }
    r->woken_count = 0;
}

static void make_ready(Run *r, i64 number)
{
    Task *task = r->task + number;
    __builtin_prefetch(r->successor + task->first_successor);
    if (task->route >= 0) {
        r->ready_transfer[r->ready_transfers++] = number;
        request_wake(r);
    } else {
        Device *device = r->device + task->device;
        push(r->ready + device->first_ready, &device->ready_count, (Entry){task->priority, number, 0});
        if (device->is_idle) wake_device(r, task->device);
    }
}

static void begin_task(Run *r, Task *task)
{
    task->start_s = r->now_s;
    for (i64 i = task[0].first_successor; i < task[1].first_successor; i++) /* they are needed soon */
        __builtin_prefetch(r->task + r->successor[i]);
}

static void complete(Run *r, Task *task)
{
    task->end_s = r->now_s;
    for (i64 i = task[0].first_successor; i < task[1].first_successor; i++)
        if (!--r->task[r->successor[i]].waits) make_ready(r, r->successor[i]);
}

static void join_own(Run *r, i64 number)
{
    join(r, r->class_ + r->task[number].activity_class, number, r->task[number].work);
}

static void start_compute(Run *r, i64 number)
{
    Task *task = r->task + number;
    begin_task(r, task);
    if (task->activity_class < 0) set_timer(r, task->delay_s, number * STAGES + COMPUTE_ENDED);
    else { join_own(r, number); request_wake(r); }
}

/* ---- transfers: line, turn, latency, links and cores ---- */

static Line *line_of(Run *r, Task *task)
{
    i64 number = r->has_lines ? r->line_of_route[task->route] : NONE;
    return number < 0 ? NULL : r->line + number;
}

/* Whether a transfer may begin at once. */
static int enter_line(Run *r, i64 number)
{
    Line *line = line_of(r, r->task + number);
    if (!line) return 1;
    r->task[number].next_in_line = NONE;
    if (line->first >= 0) r->task[line->last].next_in_line = (i32)number;
    else line->first = number;
    line->last = number;
    return line->first == number;
}

static void count_in_flight(Run *r, Task *task, i64 change)
{
    for (i64 i = r->touched_start[task->route]; i < r->touched_start[task->route + 1]; i++) {
        Device *device = r->device + r->touched[i];
        Class *c = r->class_ + r->fixed_classes - r->devices + r->touched[i];
        device->in_flight += change;
        set_cap(r, c, device->in_flight ? r->overlap_rate : 1.0);
        request_wake(r);
    }
}

/* What a transfer computes at its ends is activities on their cores, numbered on from the tasks. */
static void begin_core_work(Run *r, i64 number)
{
    i64 route = r->task[number].route;
    r->parts[number] = 1;
    for (i64 i = r->core_start[route]; i < r->core_start[route + 1]; i++) {
        double work = r->core_s_per_byte[i] * r->bytes[number];
        if (!(work > 0)) continue;
        Class *computing = r->class_ + r->fixed_classes - r->devices + r->core_device[i];
        Class *c = r->class_ + (r->free_classes ? r->free_class[--r->free_classes] : r->next_class++);
        r->use[c->first_use].resource = r->use[computing->first_use].resource;
        c->cap = r->alone_s[number] > 0 ? work / r->alone_s[number] : INFINITY;
        c->rate = 0.0;
        r->core_task[r->core_works] = number;
        r->parts[number]++;
        join(r, c, r->tasks + r->core_works++, work);
        request_wake(r);
    }
}

/* The part that computes of the devices on a transfer's hosts, on average over its ends. */
static double busy_share(Run *r, i64 number)
{
    i64 route = r->task[number].route, first = r->touched_start[route], end = r->touched_start[route + 1];
    double total = 0.0;
    if (first == end || (r->has_lines && r->bytes[number] == 0)) return 0.0;
    for (i64 i = first; i < end; i++) {
        i64 computing = 0, a = r->neighbour_start[r->touched[i]], b = r->neighbour_start[r->touched[i] + 1];
        for (i64 k = a; k < b; k++) {
            Device *device = r->device + r->neighbour[k];
            computing += !device->is_idle || device->ready_count;
        }
        if (b > a) total += (double)computing / (double)(b - a);
    }
    return total / (double)(end - first);
}

static void wait_latency(Run *r, i64 number)
{
    Task *task = r->task + number;
    if (task->delay_s > 0 || task->activity_class < 0) set_timer(r, task->delay_s, number * STAGES + LATENCY_OVER);
    else join_own(r, number);
}

static void begin_turn(Run *r, i64 number)
{
    double share = busy_share(r, number);
    if (share == 0) { wait_latency(r, number); return; }
    r->turn_previous[number] = r->turn_last;
    r->turn_next[number] = NONE;
    if (r->turn_last >= 0) r->turn_next[r->turn_last] = number;
    else r->turn_first = number;
    r->turn_last = number;
    set_timer(r, r->turn_s[r->task[number].route] * share, number * STAGES + TURN_OVER);
}

static void end_turn(Run *r, i64 number)
{
    i64 next = r->turn_next[number], previous = r->turn_previous[number];
    if (next == NOT_WAITING) return;
    if (next >= 0) r->turn_previous[next] = previous;
    else r->turn_last = previous;
    if (previous >= 0) r->turn_next[previous] = next;
    else r->turn_first = next;
    r->turn_next[number] = NOT_WAITING;
    wait_latency(r, number);
    request_wake(r);
}

static void begin_transfer(Run *r, i64 number)
{
    begin_task(r, r->task + number);
    if (r->has_overlap) count_in_flight(r, r->task + number, 1);
    if (r->has_cores) begin_core_work(r, number);
    if (r->has_turns) begin_turn(r, number);
    else wait_latency(r, number);
}

/* A transfer has ended when it has on the links and on the cores. */
static void end_part(Run *r, i64 number)
{
    Task *task = r->task + number;
    if (r->has_cores && --r->parts[number]) return;
    if (r->has_overlap) count_in_flight(r, task, -1);
    complete(r, task);
    Line *line = line_of(r, task);
    if (!line) return;
    line->first = task->next_in_line;
    if (line->first >= 0) { begin_transfer(r, line->first); request_wake(r); }
}

static void end_latency(Run *r, i64 number)
{
    if (r->task[number].activity_class < 0) end_part(r, number);
    else { join_own(r, number); request_wake(r); }
}

/* ---- the loop ---- */

static void handle(Run *r, i64 event)
{
    i64 number = event / STAGES;
    switch (event % STAGES) {
    case COMPUTE_STARTS: start_compute(r, number); break;
    case COMPUTE_ENDED: complete(r, r->task + number); become_idle(r, r->task[number].device); break;
    case TURN_OVER: end_turn(r, number); break;
    case LATENCY_OVER: end_latency(r, number); break;
    }
}

/* Share capacities anew and set the timer for the first activity to end. */
static void share_anew(Run *r)
{
    if (r->changed_count) refresh(r);
    r->wake_allowed = 1;
    r->due_s = INFINITY;
    if (r->due_count && r->class_[r->due[0]].due_s < INFINITY) {
        r->due_s = r->now_s + most(r->class_[r->due[0]].due_s - r->now_s, 0.0);
        if (r->due_s == r->now_s) request_wake(r);
    }
    if (r->ready_transfers || r->woken_count) request_wake(r);
}

/* After an instant's endings: end due activities, start what is ready, share capacities anew. */
static void run_network(Run *r)
{
    i64 done = finish(r);
    for (i64 i = 0; i < done; i++) {
        i64 activity = r->done[i];
        if (activity >= r->tasks) end_part(r, r->core_task[activity - r->tasks]);
        else if (r->task[activity].route >= 0) end_part(r, activity);
        else r->instant[r->tail++] = activity * STAGES + COMPUTE_ENDED;
    }
    sort(r->ready_transfer, r->ready_transfers);
    for (i64 i = 0; i < r->ready_transfers; i++)
        if (enter_line(r, r->ready_transfer[i])) begin_transfer(r, r->ready_transfer[i]);
    r->ready_transfers = 0;
    hand_over(r);
    for (i64 number = r->turn_first, next; number >= 0; number = next) {
        next = r->turn_next[number];
        if (busy_share(r, number) == 0) end_turn(r, number);
    }
    share_anew(r);
}

/* Turn the dependencies round, by counting: the successors of a task stand in ascending order. */
static void find_successors(Run *r)
{
    i32 sum = 0;
    for (i64 i = 0; i <= r->tasks; i++) r->task[i].first_successor = 0;
    for (i64 i = 0; i < r->dependency_start[r->tasks]; i++) r->task[r->dependencies[i]].first_successor++;
    for (i64 i = 0; i <= r->tasks; i++) sum = r->task[i].first_successor += sum;
    for (i64 i = r->tasks - 1; i >= 0; i--)
        for (i64 k = r->dependency_start[i + 1] - 1; k >= r->dependency_start[i]; k--)
            r->successor[--r->task[r->dependencies[k]].first_successor] = (i32)i;
}

/* Make ready what waits for nothing. */
void begin(Run *r)
{
    find_successors(r);
    for (i64 i = 0; i < r->tasks; i++) {
        Task *task = r->task + i;
        task->delay_s = r->delay_s[i];
        task->work = r->work[i];
        task->start_s = task->end_s = INFINITY;
        task->priority = (double)r->priority[i];
        task->device = (i32)r->device_of_task[i];
        task->route = (i32)r->route[i];
        task->activity_class = (i32)r->activity_class[i];
        task->waits = (i32)(r->dependency_start[i + 1] - r->dependency_start[i]);
        if (!task->waits) make_ready(r, i);
    }
    for (i64 device = 0; device < r->devices; device++) become_idle(r, device);
    share_anew(r);
}

/* Run on until nothing is left to happen (0), or for about `effort` events and visits of classes (1). */
i64 advance(Run *r, i64 effort)
{
    for (i64 until = r->effort + effort; r->effort < until; r->effort++) {
        if (r->timers && r->timer[0].key == r->now_s)
            handle(r, pop(r->timer, &r->timers).event);
        else if (r->head < r->tail) {
            i64 event = r->instant[r->head++];
            if (r->head == r->tail) r->head = r->tail = 0;
            handle(r, event);
        } else if (r->wake_requested) {
            r->wake_requested = 0;
            run_network(r);
        } else {
            double next_s = least(r->due_s, r->timers ? r->timer[0].key : INFINITY);
            if (next_s == INFINITY) return 0;
            r->now_s = next_s;
            if (r->due_s == next_s) { r->due_s = INFINITY; request_wake(r); }
        }
    }
    return 1;
}
