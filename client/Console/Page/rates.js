// Rates and percentiles between two overviews, from counters that only increase and start again at 0 when their node restarts.

/** Calls per second and their 99th percentile in microseconds; null if they cannot be computed. */
export function callsBetween(before, after, seconds) {
  if (!before || !after || seconds <= 0) return { perSecond: null, p99: null };
  const calls = after.calls.map((count, index) => count - before.calls[index]);
  if (calls.some((count) => count < 0)) return { perSecond: null, p99: null };
  return { perSecond: calls.reduce((sum, count) => sum + count, 0) / seconds, p99: percentile(calls, after.boundsUs, 0.99) };
}

/** The duration below which the given share of the calls is, interpolated linearly within its bucket. */
export function percentile(calls, bounds, share) {
  const total = calls.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let below = 0;
  for (let index = 0; index < calls.length; index++) {
    if (below + calls[index] >= share * total) {
      if (index === bounds.length) return Infinity;
      const least = index === 0 ? 0 : bounds[index - 1];
      return least + ((bounds[index] - least) * (share * total - below)) / calls[index];
    }
    below += calls[index];
  }
  return Infinity;
}

/** Adds up the durations of several nodes; null if none reports any. */
export function sum(durations) {
  const told = durations.filter(Boolean);
  return told.length === 0 ? null : { boundsUs: told[0].boundsUs, calls: told[0].calls.map((_, index) => told.reduce((sum, one) => sum + one.calls[index], 0)) };
}
