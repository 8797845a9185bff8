using System.Reflection;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.History;

/// <summary>What is judged in all histories of a run together; a collection that runs after all others.</summary>
[Collection(AfterAllOthers)]
public sealed class JudgedOperationsTests
{
    private const string AfterAllOthers = "after all others";

    // Twice to three times as many are made on two busy processors.
    private const int LeastOfAnOrdinaryRun = 40_000;
    private const int LeastOfALongRun = 200_000;

    /// <summary>Where only some of the tests ran, there is nothing to say about their sum.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public void Histories_OfAWholeRun_HaveEnoughOperationsTogether()
    {
        if (!Recording().All(Histories.Judged.Tests.Contains))
            return;
        Histories.LogTotal();
        Assert.InRange(Histories.Judged.Operations, Histories.IsLong ? LeastOfALongRun : LeastOfAnOrdinaryRun, int.MaxValue);
    }

    private static IEnumerable<string> Recording() => typeof(JudgedOperationsTests).Assembly.GetTypes().SelectMany(static type => type.GetMethods())
        .Where(static method => method.GetCustomAttribute<ToolFactAttribute>() is { Skip: null } test && test.Programs.Contains("lincheck") && method.DeclaringType != typeof(JudgedOperationsTests))
        .Select(static method => method.Name);

    [CollectionDefinition(AfterAllOthers, DisableParallelization = true)]
    public sealed class Last;
}
