namespace KvCluster.Benchmarks;

/// <summary>Measures one part of the system beside its peers.</summary>
/// <param name="quick">Fewer and shorter runs: enough to see that it works and roughly how fast, for CI.</param>
/// <param name="progress">Takes one line at a time about what is being measured; any thread.</param>
/// <param name="cancellation">Ctrl-C: what the suite started is stopped before it throws.</param>
/// <returns>The rows in the order in which to print them.</returns>
/// <remarks>An exception ends the program with a message; a peer that is missing is said by <paramref name="progress"/> and left out.</remarks>
internal delegate Task<IReadOnlyList<BenchmarkRow>> BenchmarkSuite(bool quick, Action<string> progress, CancellationToken cancellation);
