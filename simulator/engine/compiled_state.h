/* What the compiled engine works on. compiled.py reads names and types of all fields from here. */

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

/* An entry of a queue by (key, tie): of a timer (time, order of setting, event), of a device (priority, task), of a
 * class (level at which an activity ends, activity). */
typedef struct { double key; i64 tie, event; } Entry;

/* One cache line. */
typedef struct {
    double delay_s, work, start_s, end_s, priority;
    i32 device, route, activity_class, waits, first_successor, end_successor;
} Task;

typedef struct { i64 first_ready, ready_count, is_idle, is_woken, in_flight; } Device;

/* Activities that use the same resources, and their queue by level. */
typedef struct {
    double cap;
    i64 active, first_ending, held_in, passed_in, seen;
    i32 first_use, end_use, due_place, is_changed;
} Class;

/* A class on a resource, in the list of that resource while activities of the class are active. */
typedef struct { double weight; i32 resource, class_number, next, previous; } Use;

/* full_load: of all active classes; load: of those of them whose rate is not known yet. */
typedef struct { double capacity, full_load, left, load, ratio; i64 first_use, seen, is_changed; } Resource;

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
    i32 *first_successor, *successor;

    /* By class: its rate, what each activity has been served, until when, the level and the time of the next end. */
    double *rate, *served, *since_s, *level, *end_due_s;

    /* due: classes with an end ahead, earliest first; not kept in a crowd, whose first end is at crowd_due_s.
     * changed: resources, or classes without any (resources + c). other_loads: how many uses of active classes are a
     * load other than 1. */
    Class *class_;
    Use *use;
    Resource *resource;
    Entry *ending, *batch;
    double crowd_due_s;
    i64 due_count, changed_count, epoch, round, is_crowd, active_classes, capped_classes;
    i64 loaded_resources, other_loads;
    i64 *due, *changed, *visited, *affected, *pending, *capped, *done;

    /* Only where the runtime asks for it. */
    Line *line;
    i32 *next_in_line;
    i64 turn_first, turn_last, core_works, free_classes, next_class;
    i64 *turn_next, *turn_previous, *parts, *core_task, *free_class;
} Run;
