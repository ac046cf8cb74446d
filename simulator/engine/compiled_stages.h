/* The dynamic programme over contiguous stages of partitioners/_stages/contiguous.py; it runs nothing. */

/* Into `least_of` what is less: itself, or the values joined with their costs (added to them, or the larger of both). */
static void take_least(double *least_of, const double *value, const double *cost, i64 count, i64 added)
{
    if (added)
        for (i64 i = 0; i < count; i++) least_of[i] = least(least_of[i], value[i] + cost[i]);
    else
        for (i64 i = 0; i < count; i++) least_of[i] = least(least_of[i], most(value[i], cost[i]));
}

/* The same with one value for all costs. */
static void take_least_from(double *least_of, double value, const double *cost, i64 count, i64 added)
{
    if (added)
        for (i64 i = 0; i < count; i++) least_of[i] = least(least_of[i], value + cost[i]);
    else
        for (i64 i = 0; i < count; i++) least_of[i] = least(least_of[i], most(value, cost[i]));
}

/* Fill `values`, by devices so far, stages so far, replicas of the last stage and layers so far (`bounds` are one more
 * than layers), all infinite but for no stages on no device. A stage of r replicas from a device on costs
 * stage[device * (replicas + 1) + r], by first layer and layer behind the last; the cut before it, from q devices,
 * row device * (replicas + 1) + min(q, r) of `cut`. `begun` has room for one row. */
void stage_values(
    i64 bounds, i64 devices, i64 replicas, i64 stages, i64 added, const double *const *stage, const double *cut,
    double *begun, double *values)
{
    i64 of_stages = (replicas + 1) * bounds, of_devices = (stages + 1) * of_stages;
    for (i64 used = 1; used <= devices; used++)
        for (i64 r = 1; r <= replicas && r <= used; r++) {
            i64 device = used - r;
            const double *own = stage[device * (replicas + 1) + r];
            for (i64 before = (device + replicas - 1) / replicas; before <= device && before < stages; before++) {
                const double *ended = values + device * of_devices + before * of_stages;
                double *after = values + used * of_devices + (before + 1) * of_stages + r * bounds;
                for (i64 i = 0; i < bounds; i++) begun[i] = device ? INFINITY : ended[i]; /* the first has no cut */
                for (i64 q = 1; q <= replicas && q <= device; q++) {
                    const double *between = cut + (device * (replicas + 1) + (q < r ? q : r)) * bounds;
                    take_least(begun, ended + q * bounds, between, bounds, added);
                }
                for (i64 i = 0; i + 1 < bounds; i++)
                    if (begun[i] < INFINITY)
                        take_least_from(after + i + 1, begun[i], own + i * bounds + i + 1, bounds - i - 1, added);
            }
        }
}
