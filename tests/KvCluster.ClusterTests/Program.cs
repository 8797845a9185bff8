// The tests' own client program. Tests start it as processes, each of which calls a cluster and records what it sees.
using KvCluster.ClusterTests.History;

return args is ["history", var client, var workers, var pauseMs]
    ? await HistoryClient.RunAsync(int.Parse(client), int.Parse(workers), TimeSpan.FromMilliseconds(int.Parse(pauseMs)))
    : 2;
