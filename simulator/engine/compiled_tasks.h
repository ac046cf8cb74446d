/* What a task goes through in the compiled engine: device queues, and the steps of transfers. */

/* ---- devices ---- */

static void wake_device(Run *r, i64 device)
{
    if (!r->device[device].is_woken) { r->device[device].is_woken = 1; r->woken[r->woken_count++] = device; }
    request_wake(r);
}

static void become_idle(Run *r, i64 device)
{
    r->device[device].is_idle = 1;
    if (r->device[device].first >= 0) wake_device(r, device);
    else if (r->turn_first >= 0) request_wake(r);
}

/* How long a device that takes a task now waits until its host has launched it. */
static double launch_wait_s(Run *r, Device *device, i64 number)
{
    if (r->host_waits[number]) device->launched_s = most(device->launched_s, r->now_s);
    device->launched_s += r->launch_s[number];
    return most(device->launched_s - r->now_s, 0.0);
}

/* Give every idle device that has been woken its next task, which starts once it is launched. */
static void hand_over(Run *r)
{
    sort(r->woken, r->woken_count);
    for (i64 i = 0; i < r->woken_count; i++) {
        Device *device = r->device + r->woken[i];
        device->is_woken = 0;
        if (!device->is_idle || device->first < 0) continue;
        device->is_idle = 0;
        i64 event = device->first * STAGES + COMPUTE_STARTS;
        if (r->has_launches) set_timer(r, launch_wait_s(r, device, device->first), event);
        else r->instant[r->tail++] = event;
        device->first = NONE;
        if (!device->queued) continue;
        Entry next = pop(r->ready + device->first_queued, &device->queued);
        device->first_priority = next.key;
        device->first = next.tie;
    }
    r->woken_count = 0;
}

static void put_in_queue(Run *r, Device *device, Entry entry)
{
    Entry first = {device->first_priority, device->first, 0};
    int comes_first = first.tie < 0 || before(&entry, &first);
    if (first.tie >= 0) push(r->ready + device->first_queued, &device->queued, comes_first ? first : entry);
    if (!comes_first) return;
    device->first_priority = entry.key;
    device->first = entry.tie;
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
        put_in_queue(r, device, (Entry){r->priority[number], number, 0});
        if (device->is_idle) wake_device(r, task->device);
    }
}

static void begin_task(Run *r, i64 number)
{
    const Task *task = r->task + number;
    r->start_s[number] = r->now_s;
    for (i64 i = task->first_successor; i < task->end_successor; i++) { /* they are needed soon */
        __builtin_prefetch(r->task + r->successor[i]);
        __builtin_prefetch(r->priority + r->successor[i]);
    }
}

static void complete(Run *r, i64 number)
{
    const Task *task = r->task + number;
    r->end_s[number] = r->now_s;
    for (i64 i = task->first_successor; i < task->end_successor; i++)
        if (!--r->task[r->successor[i]].waits) make_ready(r, r->successor[i]);
}

static void join_own(Run *r, i64 number)
{
    join(r, r->task[number].activity_class, number, r->work[number]);
}

static void start_compute(Run *r, i64 number)
{
    Task *task = r->task + number;
    begin_task(r, number);
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
    r->next_in_line[number] = NONE;
    if (line->first >= 0) r->next_in_line[line->last] = (i32)number;
    else line->first = number;
    line->last = number;
    return line->first == number;
}

static void count_in_flight(Run *r, Task *task, i64 change)
{
    for (i64 i = r->touched_start[task->route]; i < r->touched_start[task->route + 1]; i++) {
        Device *device = r->device + r->touched[i];
        device->in_flight += change;
        set_cap(r, r->fixed_classes - r->devices + r->touched[i], device->in_flight ? r->overlap_rate : 1.0);
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
        i64 own = r->free_classes ? r->free_class[--r->free_classes] : r->next_class++;
        Class *c = r->class_ + own;
        r->use[c->first_use].resource = r->use[computing->first_use].resource;
        c->cap = r->alone_s[number] > 0 ? work / r->alone_s[number] : INFINITY;
        r->rate[own] = 0.0;
        r->core_task[r->core_works] = number;
        r->parts[number]++;
        join(r, own, r->tasks + r->core_works++, work);
        request_wake(r);
    }
}

/* The part that computes of the devices on a transfer's hosts, less those for which there is a core, on average over its
 * ends. */
static double busy_share(Run *r, i64 number)
{
    i64 route = r->task[number].route, first = r->touched_start[route], end = r->touched_start[route + 1];
    double total = 0.0;
    if (first == end || (r->has_lines && r->bytes[number] == 0)) return 0.0;
    for (i64 i = first; i < end; i++) {
        i64 computing = 0, a = r->neighbour_start[r->touched[i]], b = r->neighbour_start[r->touched[i] + 1];
        for (i64 k = a; k < b; k++) {
            Device *device = r->device + r->neighbour[k];
            computing += !device->is_idle || device->first >= 0;
        }
        i64 spare = b > a ? r->spare[r->touched[i]] : 0;
        if (computing > spare) total += (double)(computing - spare) / (double)(b - a - spare);
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
    begin_task(r, number);
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
    complete(r, number);
    Line *line = line_of(r, task);
    if (!line) return;
    line->first = r->next_in_line[number];
    if (line->first >= 0) { begin_transfer(r, line->first); request_wake(r); }
}

static void end_latency(Run *r, i64 number)
{
    if (r->task[number].activity_class < 0) end_part(r, number);
    else { join_own(r, number); request_wake(r); }
}
