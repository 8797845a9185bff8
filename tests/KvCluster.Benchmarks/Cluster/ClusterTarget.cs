namespace KvCluster.Benchmarks.Cluster;

/// <summary>One way to put and get in one cluster.</summary>
/// <param name="Name">Its name in the table.</param>
/// <param name="Servers">Processes whose CPU time counts.</param>
/// <param name="Put">One put, with the caller's number and the number of key and value.</param>
/// <param name="Get">One get that must find its key.</param>
/// <param name="FindLeader">Points it at the leader again, after a change of leaders has ended a run.</param>
internal sealed record ClusterTarget(
    string Name, IReadOnlyList<int> Servers, Func<int, int, Task> Put, Func<int, int, Task> Get, Func<CancellationToken, Task> FindLeader);
