/* Chains of dependencies, for reports; they run nothing. */

enum { UNSEEN = -1, BEGUN = -2 }; /* in place of an end, which is at least 0 */

/* When the last task ends if each begins once all that it waits for have ended. `next` holds dependency_start, `end`
 * UNSEEN and `stack` room for every task; what a task waits for is done before it, whatever their order. A cycle is
 * cut where it is met. */
double longest_chain(
    i64 tasks, const i64 *dependency_start, const i64 *dependencies, const double *seconds, double *end, i64 *next,
    i64 *stack)
{
    double longest = 0.0;
    for (i64 first = 0; first < tasks; first++) {
        i64 depth = 0;
        if (end[first] == UNSEEN) { stack[depth++] = first; end[first] = BEGUN; }
        while (depth) {
            i64 task = stack[depth - 1];
            if (next[task] < dependency_start[task + 1]) {
                i64 before = dependencies[next[task]++];
                if (end[before] == UNSEEN) { stack[depth++] = before; end[before] = BEGUN; }
                continue;
            }
            double begin = 0.0;
            for (i64 i = dependency_start[task]; i < dependency_start[task + 1]; i++)
                begin = most(begin, end[dependencies[i]]);
            end[task] = begin + seconds[task];
            longest = most(longest, end[task]);
            depth--;
        }
    }
    return longest;
}

/* Back from the task that ended last: before each stands the dependency that ended last, or the task that its device
 * ran before (`before`, or NONE) where that ended later. Into `chain`, last to first; how many they are. */
i64 binding_chain(
    i64 tasks, const i64 *dependency_start, const i64 *dependencies, const double *start_s, const double *end_s,
    const i64 *before, i64 *chain)
{
    i64 task = 0, count = 0;
    for (i64 i = 1; i < tasks; i++)
        if (end_s[i] > end_s[task]) task = i;
    while (task >= 0 && count <= tasks) {
        i64 last = NONE, other = before[task];
        chain[count++] = task;
        for (i64 i = dependency_start[task]; i < dependency_start[task + 1]; i++)
            if (last < 0 || end_s[dependencies[i]] > end_s[last]) last = dependencies[i];
        if (other >= 0 && (last < 0 || end_s[other] > end_s[last])) last = other;
        task = start_s[task] <= 0 ? NONE : last;
    }
    return count;
}
