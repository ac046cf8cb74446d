/* The compiled engine. Same columns, same order of events and of arithmetic as the reference engine beside it
 * (reference.py and what it imports, sharing.py), so that start and end of every task agree bit for bit.
 * Compile with -ffp-contract=off. No memory is allocated here and nothing is global: all arrays belong to the
 * caller (compiled.py), who has checked every index. min and max keep their first argument where the two are equal
 * or not comparable, as Python's do. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

typedef int64_t i64;

#define ROUNDING 1e-12  /* activities that would end within this fraction of the current time end together */
#define NOT_WAITING (-2)

/* An entry of a queue by (key, tie): of a timer (time, order of setting, event), of a device (priority, task), of a
 * class (level at which an activity ends, activity). */
typedef struct { double key; i64 tie, event; } Entry;

enum { COMPUTE_ENDED, COMPUTE_STARTS, TURN_OVER, LATENCY_OVER, STAGES };  /* an event is task * STAGES + stage */

/* compiled.py reads the names and types of these fields from here. */
typedef struct {
    /* What is run: see Columns. The queue of device d begins at first_ready[d], that of class c at first_ending[c].
     * Classes from fixed_classes on are for core work, made and given back as it comes. */
    i64 tasks, devices, resources, fixed_classes, has_lines, has_overlap, has_turns, has_cores;
    double overlap_rate;
    const i64 *device, *route, *priority, *activity_class, *dependency_start, *dependencies, *first_ready;
    const i64 *class_start, *class_of_use, *first_ending, *line, *touched_start, *touched;
    const i64 *neighbour_start, *neighbour, *core_start, *core_device;
    const double *delay_s, *work, *bytes, *capacity, *weight, *turn_s, *core_s_per_byte, *alone_s;
    i64 *resource;

    /* The clock: timers, the events of this instant from head to tail, the next end of an activity. */
    double now_s, due_s;
    i64 order, timers, head, tail, wake_allowed, wake_requested, effort;
    Entry *timer;
    i64 *instant;

    /* Tasks and devices. */
    i64 ready_transfers, woken_count;
    i64 *waits, *successor_start, *successor, *ready_transfer, *ready_count, *idle, *woken, *is_woken;
    double *start_s, *end_s;
    Entry *ready;

    /* Classes, their uses of resources (lists by resource), resources. */
    i64 due_count, changed_count, epoch;
    i64 *active, *due_place, *due, *class_seen, *next_use, *previous_use, *first_use, *resource_seen;
    i64 *is_changed, *changed, *visited, *pending, *full, *done;
    double *cap, *served, *rate, *since_s, *class_due_s, *left, *load, *ratio;
    Entry *ending, *affected;

    /* Only where the runtime asks for it. */
    i64 turn_first, turn_last, core_works, free_classes, next_class;
    i64 *line_first, *line_last, *line_next, *in_flight, *turn_next, *turn_previous, *parts, *core_task, *free_class;
} Run;

static double least(double a, double b) { return b < a ? b : a; }
static double most(double a, double b) { return b > a ? b : a; }

/* ---- queues ---- */

static int before(Entry a, Entry b) { return a.key < b.key || (a.key == b.key && a.tie < b.tie); }

static void push(Entry *heap, i64 *count, Entry entry)
{
    i64 i = (*count)++;
    for (; i > 0 && before(entry, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = entry;
}

static Entry pop(Entry *heap, i64 *count)
{
    Entry top = heap[0], last = heap[--*count];
    i64 i = 0, child;
    while ((child = 2 * i + 1) < *count) {
        if (child + 1 < *count && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], last)) break;
        heap[i] = heap[child];
        i = child;
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
static void due_put(Run *r, i64 place, i64 class) { r->due[place] = class; r->due_place[class] = place; }

static void due_sift(Run *r, i64 i, i64 class)
{
    double at_s = r->class_due_s[class];
    i64 child;
    for (; i > 0 && at_s < r->class_due_s[r->due[(i - 1) / 2]]; i = (i - 1) / 2) due_put(r, i, r->due[(i - 1) / 2]);
    while ((child = 2 * i + 1) < r->due_count) {
        if (child + 1 < r->due_count && r->class_due_s[r->due[child + 1]] < r->class_due_s[r->due[child]]) child++;
        if (!(r->class_due_s[r->due[child]] < at_s)) break;
        due_put(r, i, r->due[child]);
        i = child;
    }
    due_put(r, i, class);
}

static void due_remove(Run *r, i64 class)
{
    i64 place = r->due_place[class], last;
    if (place < 0) return;
    last = r->due[--r->due_count];
    if (last != class) due_sift(r, place, last);
    r->due_place[class] = -1;
}

/* ---- time ---- */

static void request_wake(Run *r)
{
    if (r->wake_allowed) { r->wake_allowed = 0; r->wake_requested = 1; }
}

static void set_timer(Run *r, double delay_s, i64 task, i64 stage)
{
    double at_s = r->now_s + delay_s;
    if (at_s == r->now_s)
        r->instant[r->tail++] = task * STAGES + stage;
    else
        push(r->timer, &r->timers, (Entry){at_s, r->order++, task * STAGES + stage});
}

/* ---- sharing: max-min fair, by progressive filling ---- */

static void serve(Run *r, i64 class)
{
    if (r->active[class]) r->served[class] += r->rate[class] * (r->now_s - r->since_s[class]);
    r->since_s[class] = r->now_s;
}

/* What is shared anew by `refresh`: the resources of a class, or, where it has none, the class itself. */
static void mark_changed(Run *r, i64 class)
{
    i64 use = r->class_start[class], end = r->class_start[class + 1];
    i64 item = use == end ? r->resources + class : r->resource[use];
    do {
        if (!r->is_changed[item]) { r->is_changed[item] = 1; r->changed[r->changed_count++] = item; }
    } while (++use < end && (item = r->resource[use], 1));
}

static void join(Run *r, i64 class, i64 activity, double work)
{
    serve(r, class);
    push(r->ending + r->first_ending[class], &r->active[class], (Entry){r->served[class] + work, activity, 0});
    for (i64 use = r->class_start[class]; r->active[class] == 1 && use < r->class_start[class + 1]; use++) {
        i64 first = r->first_use[r->resource[use]];
        r->next_use[use] = first;
        r->previous_use[use] = -1;
        if (first >= 0) r->previous_use[first] = use;
        r->first_use[r->resource[use]] = use;
    }
    mark_changed(r, class);
}

static void leave(Run *r, i64 class)
{
    r->served[class] = 0.0;
    for (i64 use = r->class_start[class]; use < r->class_start[class + 1]; use++) {
        i64 next = r->next_use[use], previous = r->previous_use[use];
        if (next >= 0) r->previous_use[next] = previous;
        if (previous >= 0) r->next_use[previous] = next;
        else r->first_use[r->resource[use]] = next;
    }
    if (class >= r->fixed_classes) r->free_class[r->free_classes++] = class;
}

static void set_cap(Run *r, i64 class, double cap)
{
    if (cap == r->cap[class]) return;
    serve(r, class);
    r->cap[class] = cap;
    if (r->active[class]) mark_changed(r, class);
}

/* Remove the activities that are done by now into `done`, ascending; how many they are. */
static i64 finish(Run *r)
{
    i64 count = 0;
    while (r->due_count && r->class_due_s[r->due[0]] <= r->now_s * (1 + ROUNDING)) {
        i64 class = r->due[0];
        Entry *ending = r->ending + r->first_ending[class];
        due_remove(r, class);
        serve(r, class);
        double reach = r->served[class] + most(r->rate[class] * r->now_s, r->served[class]) * ROUNDING;
        while (r->active[class] && ending[0].key <= reach) r->done[count++] = pop(ending, &r->active[class]).tie;
        mark_changed(r, class);
        if (!r->active[class]) leave(r, class);
    }
    sort(r->done, count);
    return count;
}

static i64 visit(Run *r, i64 resource, i64 count)
{
    if (r->resource_seen[resource] == r->epoch) return count;
    r->resource_seen[resource] = r->epoch;
    r->left[resource] = r->capacity[resource];
    r->load[resource] = 0.0;
    r->visited[count] = resource;
    return count + 1;
}

static i64 affect(Run *r, i64 class, i64 count)
{
    if (!r->active[class] || r->class_seen[class] == r->epoch) return count;
    r->class_seen[class] = r->epoch;
    r->affected[count] = (Entry){0.0, r->ending[r->first_ending[class]].tie, class};
    return count + 1;
}

/* Into `affected` the active classes joined to what has changed through shared resources, by their first activity;
 * into `visited` those resources, *visited_count of them. */
static i64 find_affected(Run *r, i64 *visited_count)
{
    i64 classes = 0, resources = 0;
    r->epoch++;
    for (i64 i = 0; i < r->changed_count; i++) {
        i64 item = r->changed[i];
        r->is_changed[item] = 0;
        if (item < r->resources) resources = visit(r, item, resources);
        else classes = affect(r, item - r->resources, classes);
    }
    r->changed_count = 0;
    for (i64 i = 0; i < resources; i++)
        for (i64 use = r->first_use[r->visited[i]]; use >= 0; use = r->next_use[use]) {
            i64 class = r->class_of_use[use], known = classes;
            classes = affect(r, class, classes);
            for (i64 k = r->class_start[class]; classes > known && k < r->class_start[class + 1]; k++)
                resources = visit(r, r->resource[k], resources);
        }
    for (i64 i = 1; i < classes; i++)
        if (r->affected[i].tie < r->affected[i - 1].tie) {
            qsort(r->affected, (size_t)classes, sizeof *r->affected, by_tie);
            break;
        }
    *visited_count = resources;
    return classes;
}

/* Take what `class` uses at rate `share` from its resources. */
static void settle(Run *r, i64 class, double share)
{
    for (i64 use = r->class_start[class]; use < r->class_start[class + 1]; use++) {
        double load = r->weight[use] * (double)r->active[class];
        i64 resource = r->resource[use];
        r->left[resource] = most(r->left[resource] - load * share, 0.0);
        r->load[resource] -= load;
    }
}

/* Whether `class` can go no faster than `limit`. */
static int is_held(Run *r, i64 class, double limit)
{
    if (r->cap[class] <= limit) return 1;
    for (i64 use = r->class_start[class]; use < r->class_start[class + 1]; use++)
        if (r->full[r->resource[use]]) return 1;
    return 0;
}

/* Max-min fair rates of the `classes` in `affected`, which share the resources in `visited` with no others. */
static void fill(Run *r, i64 classes, i64 resources)
{
    for (i64 i = 0; i < classes; i++) {
        i64 class = r->pending[i] = r->affected[i].event;
        for (i64 use = r->class_start[class]; use < r->class_start[class + 1]; use++)
            r->load[r->resource[use]] += r->weight[use] * (double)r->active[class];
    }
    while (classes) {
        double share = INFINITY;
        i64 kept = 0, limited = 0;
        for (i64 i = 0; i < resources; i++) {
            i64 resource = r->visited[i];
            if (!(r->load[resource] > 0.0)) { r->full[resource] = 0; continue; }
            r->ratio[resource] = r->left[resource] / r->load[resource];
            share = least(share, r->ratio[resource]);
            r->visited[limited++] = resource;
        }
        resources = limited;
        for (i64 i = 0; i < classes; i++) share = least(share, r->cap[r->pending[i]]);
        double limit = share * (1 + ROUNDING);
        for (i64 i = 0; i < resources; i++) r->full[r->visited[i]] = r->ratio[r->visited[i]] <= limit;
        for (i64 i = 0; i < classes; i++) {
            i64 class = r->pending[i];
            if (is_held(r, class, limit)) { r->rate[class] = share; settle(r, class, share); }
            else r->pending[kept++] = class;
        }
        r->effort += classes + resources;
        classes = kept;
    }
}

/* Give every affected class its new rate. */
static void refresh(Run *r)
{
    i64 resources, classes = find_affected(r, &resources);
    for (i64 i = 0; i < classes; i++) serve(r, r->affected[i].event);
    fill(r, classes, resources);
    for (i64 i = 0; i < classes; i++) {
        i64 class = r->affected[i].event, place = r->due_place[class];
        if (r->rate[class] > 0) {
            double to_do = most(r->ending[r->first_ending[class]].key - r->served[class], 0.0);
            r->class_due_s[class] = r->now_s + to_do / r->rate[class];
            due_sift(r, place < 0 ? r->due_count++ : place, class);
        } else
            due_remove(r, class);
    }
}

/* ---- devices ---- */

static void wake_device(Run *r, i64 device)
{
    if (!r->is_woken[device]) { r->is_woken[device] = 1; r->woken[r->woken_count++] = device; }
    request_wake(r);
}

static void become_idle(Run *r, i64 device)
{
    r->idle[device] = 1;
    if (r->ready_count[device]) wake_device(r, device);
    else if (r->turn_first >= 0) request_wake(r);
}

/* Give every idle device that has been woken its next task. */
static void hand_over(Run *r)
{
    sort(r->woken, r->woken_count);
    for (i64 i = 0; i < r->woken_count; i++) {
        i64 device = r->woken[i];
        r->is_woken[device] = 0;
        if (!r->idle[device] || !r->ready_count[device]) continue;
        r->idle[device] = 0;
        i64 task = pop(r->ready + r->first_ready[device], &r->ready_count[device]).tie;
        r->instant[r->tail++] = task * STAGES + COMPUTE_STARTS;
    }
    r->woken_count = 0;
}

static void make_ready(Run *r, i64 task)
{
    i64 device = r->device[task];
    if (device < 0) {
        r->ready_transfer[r->ready_transfers++] = task;
        request_wake(r);
    } else {
        Entry entry = {(double)r->priority[task], task, 0};
        push(r->ready + r->first_ready[device], &r->ready_count[device], entry);
        if (r->idle[device]) wake_device(r, device);
    }
}

static void complete(Run *r, i64 task)
{
    r->end_s[task] = r->now_s;
    for (i64 i = r->successor_start[task]; i < r->successor_start[task + 1]; i++)
        if (!--r->waits[r->successor[i]]) make_ready(r, r->successor[i]);
}

static void start_compute(Run *r, i64 task)
{
    r->start_s[task] = r->now_s;
    if (r->activity_class[task] < 0) set_timer(r, r->delay_s[task], task, COMPUTE_ENDED);
    else { join(r, r->activity_class[task], task, r->work[task]); request_wake(r); }
}

/* ---- transfers: line, turn, latency, links and cores ---- */

static i64 line_of(Run *r, i64 task) { return r->has_lines ? r->line[r->route[task]] : -1; }

/* Whether `task` may begin at once. */
static int enter_line(Run *r, i64 task)
{
    i64 line = line_of(r, task);
    if (line < 0) return 1;
    r->line_next[task] = -1;
    if (r->line_first[line] >= 0) r->line_next[r->line_last[line]] = task;
    else r->line_first[line] = task;
    r->line_last[line] = task;
    return r->line_first[line] == task;
}

static void count_in_flight(Run *r, i64 task, i64 change)
{
    i64 route = r->route[task];
    for (i64 i = r->touched_start[route]; i < r->touched_start[route + 1]; i++) {
        i64 device = r->touched[i];
        r->in_flight[device] += change;
        set_cap(r, r->fixed_classes - r->devices + device, r->in_flight[device] ? r->overlap_rate : 1.0);
        request_wake(r);
    }
}

/* What a transfer computes at its ends is activities on their cores, numbered on from the tasks. */
static void begin_core_work(Run *r, i64 task)
{
    i64 route = r->route[task];
    r->parts[task] = 1;
    for (i64 i = r->core_start[route]; i < r->core_start[route + 1]; i++) {
        double work = r->core_s_per_byte[i] * r->bytes[task];
        if (!(work > 0)) continue;
        i64 class = r->free_classes ? r->free_class[--r->free_classes] : r->next_class++;
        i64 device_class = r->fixed_classes - r->devices + r->core_device[i];
        r->resource[r->class_start[class]] = r->resource[r->class_start[device_class]];
        r->cap[class] = r->alone_s[task] > 0 ? work / r->alone_s[task] : INFINITY;
        r->rate[class] = 0.0;
        r->core_task[r->core_works] = task;
        r->parts[task]++;
        join(r, class, r->tasks + r->core_works++, work);
        request_wake(r);
    }
}

/* The part that computes of the devices on a transfer's hosts, on average over its ends. */
static double busy_share(Run *r, i64 task)
{
    i64 first = r->touched_start[r->route[task]], end = r->touched_start[r->route[task] + 1];
    double total = 0.0;
    if (first == end || (r->has_lines && r->bytes[task] == 0)) return 0.0;
    for (i64 i = first; i < end; i++) {
        i64 computing = 0, a = r->neighbour_start[r->touched[i]], b = r->neighbour_start[r->touched[i] + 1];
        for (i64 k = a; k < b; k++) computing += !r->idle[r->neighbour[k]] || r->ready_count[r->neighbour[k]];
        if (b > a) total += (double)computing / (double)(b - a);
    }
    return total / (double)(end - first);
}

static void wait_latency(Run *r, i64 task)
{
    if (r->delay_s[task] > 0 || r->activity_class[task] < 0) set_timer(r, r->delay_s[task], task, LATENCY_OVER);
    else join(r, r->activity_class[task], task, r->work[task]);
}

static void begin_turn(Run *r, i64 task)
{
    double share = busy_share(r, task);
    if (share == 0) { wait_latency(r, task); return; }
    r->turn_previous[task] = r->turn_last;
    r->turn_next[task] = -1;
    if (r->turn_last >= 0) r->turn_next[r->turn_last] = task;
    else r->turn_first = task;
    r->turn_last = task;
    set_timer(r, r->turn_s[r->route[task]] * share, task, TURN_OVER);
}

static void end_turn(Run *r, i64 task)
{
    i64 next = r->turn_next[task], previous = r->turn_previous[task];
    if (next == NOT_WAITING) return;
    if (next >= 0) r->turn_previous[next] = previous;
    else r->turn_last = previous;
    if (previous >= 0) r->turn_next[previous] = next;
    else r->turn_first = next;
    r->turn_next[task] = NOT_WAITING;
    wait_latency(r, task);
    request_wake(r);
}

static void begin_transfer(Run *r, i64 task)
{
    r->start_s[task] = r->now_s;
    if (r->has_overlap) count_in_flight(r, task, 1);
    if (r->has_cores) begin_core_work(r, task);
    if (r->has_turns) begin_turn(r, task);
    else wait_latency(r, task);
}

/* A transfer has ended when it has on the links and on the cores. */
static void end_part(Run *r, i64 task)
{
    i64 line = line_of(r, task);
    if (r->has_cores && --r->parts[task]) return;
    if (r->has_overlap) count_in_flight(r, task, -1);
    complete(r, task);
    if (line < 0) return;
    i64 next = r->line_first[line] = r->line_next[task];
    if (next >= 0) { begin_transfer(r, next); request_wake(r); }
}

static void latency_over(Run *r, i64 task)
{
    if (r->activity_class[task] < 0) end_part(r, task);
    else { join(r, r->activity_class[task], task, r->work[task]); request_wake(r); }
}

/* ---- the loop ---- */

static void handle(Run *r, i64 event)
{
    i64 task = event / STAGES;
    switch (event % STAGES) {
    case COMPUTE_STARTS: start_compute(r, task); break;
    case COMPUTE_ENDED: complete(r, task); become_idle(r, r->device[task]); break;
    case TURN_OVER: end_turn(r, task); break;
    case LATENCY_OVER: latency_over(r, task); break;
    }
}

/* Share capacities anew and set the timer for the first activity to end. */
static void share(Run *r)
{
    if (r->changed_count) refresh(r);
    r->wake_allowed = 1;
    r->due_s = INFINITY;
    if (r->due_count && r->class_due_s[r->due[0]] < INFINITY) {
        r->due_s = r->now_s + most(r->class_due_s[r->due[0]] - r->now_s, 0.0);
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
        else if (r->device[activity] < 0) end_part(r, activity);
        else r->instant[r->tail++] = activity * STAGES + COMPUTE_ENDED;
    }
    sort(r->ready_transfer, r->ready_transfers);
    for (i64 i = 0; i < r->ready_transfers; i++)
        if (enter_line(r, r->ready_transfer[i])) begin_transfer(r, r->ready_transfer[i]);
    r->ready_transfers = 0;
    hand_over(r);
    for (i64 task = r->turn_first, next; task >= 0; task = next) {
        next = r->turn_next[task];
        if (busy_share(r, task) == 0) end_turn(r, task);
    }
    share(r);
}

/* How large a Run is, for the caller to compare. */
i64 run_size(void) { return (i64)sizeof(Run); }

/* Turn the dependencies round and make ready what has none. */
void begin(Run *r)
{
    i64 *next = r->successor_start + 1;
    for (i64 i = 0; i < r->dependency_start[r->tasks]; i++) next[r->dependencies[i]]++;
    for (i64 task = 0, sum = 0, count; task < r->tasks; task++) { count = next[task]; next[task] = sum; sum += count; }
    for (i64 task = 0; task < r->tasks; task++)
        for (i64 i = r->dependency_start[task]; i < r->dependency_start[task + 1]; i++)
            r->successor[next[r->dependencies[i]]++] = task;
    for (i64 task = 0; task < r->tasks; task++) {
        r->start_s[task] = r->end_s[task] = INFINITY;
        r->waits[task] = r->dependency_start[task + 1] - r->dependency_start[task];
        if (!r->waits[task]) make_ready(r, task);
    }
    for (i64 device = 0; device < r->devices; device++) become_idle(r, device);
    share(r);
}

/* Run on until nothing is left to happen (0) or about `effort` events later (1). */
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
