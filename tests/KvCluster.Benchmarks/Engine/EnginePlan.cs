namespace KvCluster.Benchmarks.Engine;

/// <summary>What a run of the engine suite measures.</summary>
/// <param name="Only">The groups of rows, by name; none: all of them.</param>
/// <param name="Systems">The engines, by name; none: all that are installed.</param>
/// <param name="Keys">Keys of a large store.</param>
/// <param name="Rounds">Times that each row is measured with each engine, alternating.</param>
/// <param name="Time">Length of one measurement of a rate, and by that the number of puts.</param>
internal sealed record EnginePlan(IReadOnlyList<string> Only, IReadOnlyList<string> Systems, long Keys, int Rounds, TimeSpan Time)
{
    /// <summary>The full size, or a short one for CI, with what the command line sets.</summary>
    public static EnginePlan Of(bool quick, IReadOnlyList<string> only, IReadOnlyList<string> systems, long? keys, int? rounds, double? seconds) => new(
        only, systems, keys ?? (quick ? 200_000 : 10_000_000), rounds ?? 3, TimeSpan.FromSeconds(seconds ?? (quick ? 0.5 : 5)));
}
