namespace KvCluster.Benchmarks;

/// <summary>Measures one part of the system beside its peers.</summary>
/// <param name="quick">Fewer and shorter runs for CI, which show that it works and roughly how fast.</param>
/// <param name="progress">Gets one line at a time about what is being measured. Called on any thread.</param>
/// <param name="cancellation">Ctrl-C: the suite stops everything that it started before it throws.</param>
/// <returns>The rows in the order in which to print them.</returns>
/// <remarks>An exception ends the program with a message. A missing peer is reported to <paramref name="progress"/> and left out.</remarks>
internal delegate Task<IReadOnlyList<BenchmarkRow>> BenchmarkSuite(bool quick, Action<string> progress, CancellationToken cancellation);
