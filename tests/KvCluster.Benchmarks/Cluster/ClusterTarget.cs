namespace KvCluster.Benchmarks.Cluster;

/// <summary>One way to put and get in one cluster.</summary>
/// <param name="Name">As the table shows it.</param>
/// <param name="Servers">Processes whose CPU counts.</param>
/// <param name="Put">One put: the caller's number, and which key and value.</param>
/// <param name="Get">One get that must find its key.</param>
/// <param name="FindLeader">Points it at the leader again, after a run that its change has broken off.</param>
internal sealed record ClusterTarget(string Name, IReadOnlyList<int> Servers, Func<int, int, Task> Put, Func<int, int, Task> Get, Func<CancellationToken, Task> FindLeader);
