// The tests' own client program: started by tests as processes, each of which calls a cluster and writes down what it saw.
using KvCluster.ClusterTests.History;

return args is ["history", var client, var workers, var pauseMs]
    ? await HistoryClient.RunAsync(int.Parse(client), int.Parse(workers), TimeSpan.FromMilliseconds(int.Parse(pauseMs)))
    : 2;
