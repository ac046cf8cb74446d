/* The compiled engine. Same columns, same order of events and of arithmetic as the reference engine beside it
 * (reference.py and what it imports, max_min.py), so that start and end of every task agree bit for bit.
 * Compile with -ffp-contract=off. No memory is allocated here and nothing is global: all arrays belong to the
 * caller (compiled.py), who has checked every index. least and most keep their first argument where the two are
 * equal, as Python's min and max do. */

#include "compiled_state.h"

#include "compiled_queues.h"

#include "compiled_sharing.h"

#include "compiled_tasks.h"

#include "compiled_chain.h"

#include "compiled_rows.h"

#include "compiled_stages.h"

static void handle(Run *r, i64 event)
{
    i64 number = event / STAGES;
    switch (event % STAGES) {
    case COMPUTE_STARTS: start_compute(r, number); break;
    case COMPUTE_ENDED: complete(r, number); become_idle(r, r->task[number].device); break;
    case TURN_OVER: end_turn(r, number); break;
    case LATENCY_OVER: end_latency(r, number); break;
    }
}

/* Share capacities anew and set the timer for the first activity to end. */
static void share_anew(Run *r)
{
    if (r->changed_count || r->stale_count) refresh(r);
    r->wake_allowed = 1;
    r->due_s = INFINITY;
    double end_s = r->first_end_s;
    if (end_s < INFINITY) {
        r->due_s = r->now_s + most(end_s - r->now_s, 0.0);
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
    i32 sum = 0, *first = r->first_successor;
    for (i64 i = 0; i < r->dependency_start[r->tasks]; i++) first[r->dependencies[i]]++;
    for (i64 i = 0; i <= r->tasks; i++) sum = first[i] += sum;
    for (i64 i = r->tasks - 1; i >= 0; i--)
        for (i64 k = r->dependency_start[i + 1] - 1; k >= r->dependency_start[i]; k--)
            r->successor[--first[r->dependencies[k]]] = (i32)i;
}

/* Make ready what waits for nothing. */
void begin(Run *r)
{
    find_successors(r);
    for (i64 i = 0; i < r->tasks; i++) {
        Task *task = r->task + i;
        task->delay_s = r->delay_s[i];
        r->start_s[i] = r->end_s[i] = INFINITY;
        task->device = (i32)r->device_of_task[i];
        task->route = (i32)r->route[i];
        task->activity_class = (i32)r->activity_class[i];
        task->waits = (i32)(r->dependency_start[i + 1] - r->dependency_start[i]);
        task->first_successor = r->first_successor[i];
        task->end_successor = r->first_successor[i + 1];
        if (!task->waits) make_ready(r, i);
    }
    for (i64 device = 0; device < r->devices; device++) become_idle(r, device);
    share_anew(r);
}

/* Run on until nothing is left to happen (0), or for about `effort` events and visits of classes (1). */
i64 advance(Run *r, i64 effort)
{
    for (i64 until = r->effort + effort; r->effort < until; r->effort++) {
        if (r->timers && value_of(r->timer[0].key) == r->now_s)
            handle(r, pop(r->timer, &r->timers).event);
        else if (r->head < r->tail) {
            i64 event = r->instant[r->head++];
            if (r->head == r->tail) r->head = r->tail = 0;
            handle(r, event);
        } else if (r->wake_requested) {
            r->wake_requested = 0;
            run_network(r);
        } else {
            double next_s = least(r->due_s, r->timers ? value_of(r->timer[0].key) : INFINITY);
            if (next_s == INFINITY) return 0;
            r->now_s = next_s;
            if (r->due_s == next_s) { r->due_s = INFINITY; request_wake(r); }
        }
    }
    return 1;
}
