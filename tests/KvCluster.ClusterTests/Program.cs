// The tests' own client programs. Tests start them as processes: one that calls a cluster and records what it sees, and one with many watches.
using KvCluster.ClusterTests;
using KvCluster.ClusterTests.History;

return args is ["history", var client, var workers, var pauseMs]
    ? await HistoryClient.RunAsync(int.Parse(client), int.Parse(workers), TimeSpan.FromMilliseconds(int.Parse(pauseMs)))
    : await WatchersProcess.TryRunAsync(args) ?? 2;
