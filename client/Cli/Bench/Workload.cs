namespace KvCluster.Cli.Bench;

/// <summary>Which operations a benchmark makes, and on which keys.</summary>
/// <param name="Name">What it is called on the command line.</param>
/// <param name="Mix">Operations and how many of a hundred each is.</param>
/// <param name="Keys">Which keys are chosen.</param>
internal sealed record Workload(string Name, IReadOnlyList<(BenchOperation Operation, int Percent)> Mix, KeyDistribution Keys)
{
    private const int All100 = 100;

    /// <summary>
    /// All of them. Those of one letter are the core workloads of YCSB (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", 2010).
    /// </summary>
    public static IReadOnlyList<Workload> All { get; } =
    [
        new("put", [(BenchOperation.Put, All100)], KeyDistribution.Uniform),
        new("get", [(BenchOperation.Get, All100)], KeyDistribution.Uniform),
        new("mixed", [(BenchOperation.Get, 50), (BenchOperation.Put, 50)], KeyDistribution.Uniform),
        new("a", [(BenchOperation.Get, 50), (BenchOperation.Put, 50)], KeyDistribution.Zipfian),
        new("b", [(BenchOperation.Get, 95), (BenchOperation.Put, 5)], KeyDistribution.Zipfian),
        new("c", [(BenchOperation.Get, All100)], KeyDistribution.Zipfian),
        new("d", [(BenchOperation.Get, 95), (BenchOperation.Insert, 5)], KeyDistribution.Latest),
        new("e", [(BenchOperation.Scan, 95), (BenchOperation.Insert, 5)], KeyDistribution.Zipfian),
        new("f", [(BenchOperation.Get, 50), (BenchOperation.Modify, 50)], KeyDistribution.Zipfian),
    ];

    /// <summary>The operation that a number from 0 to 99 stands for.</summary>
    public BenchOperation OperationOf(int number)
    {
        foreach (var (operation, percent) in Mix)
        {
            if (number < percent)
                return operation;
            number -= percent;
        }
        return Mix[^1].Operation;
    }
}

/// <summary>One operation of a benchmark.</summary>
internal enum BenchOperation
{
    Get,
    Put,

    /// <summary>A put of a key that is new.</summary>
    Insert,

    /// <summary>A scan of 1 to 100 entries.</summary>
    Scan,

    /// <summary>A get, and a put of the same key.</summary>
    Modify,
}

/// <summary>Which keys are chosen.</summary>
internal enum KeyDistribution
{
    /// <summary>Each as often as any other.</summary>
    Uniform,

    /// <summary>Few often and many seldom, spread over all keys.</summary>
    Zipfian,

    /// <summary>As <see cref="Zipfian"/>, and the newer a key the more often.</summary>
    Latest,
}
