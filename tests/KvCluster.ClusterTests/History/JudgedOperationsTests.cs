using System.Reflection;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.History;

/// <summary>A check over all histories of a run together. Its collection runs after all others.</summary>
[Collection(AfterAllOthers)]
public sealed class JudgedOperationsTests
{
    private const string AfterAllOthers = "after all others";

    // Even on two busy processors two to three times as many operations are made.
    private const int LeastOfAnOrdinaryRun = 8_000;
    private const int LeastOfALongRun = 40_000;

    /// <summary>If only some of the tests of every change ran, the total is not checked.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public void Histories_OfAWholeRun_HaveEnoughOperationsInAll()
    {
        if (!Recording().All(Histories.Judged.Tests.Contains))
            return;
        Histories.LogTotal();
        Assert.InRange(Histories.Judged.Operations, Histories.IsLong ? LeastOfALongRun : LeastOfAnOrdinaryRun, int.MaxValue);
    }

    private static IEnumerable<string> Recording() => typeof(JudgedOperationsTests).Assembly.GetTypes().SelectMany(static type => type.GetMethods())
        .Where(static method => method.GetCustomAttribute<ToolFactAttribute>() is { Skip: null } test && test.Programs.Contains("lincheck") && method.DeclaringType != typeof(JudgedOperationsTests))
        .Where(static method => !HasTurn(method) && !HasTurn(method.DeclaringType!))
        .Select(static method => method.Name);

    private static bool HasTurn(MemberInfo member) => member.IsDefined(typeof(TraitAttribute));

    [CollectionDefinition(AfterAllOthers, DisableParallelization = true)]
    public sealed class Last;
}
