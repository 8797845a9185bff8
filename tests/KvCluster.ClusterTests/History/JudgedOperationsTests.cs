using System.Reflection;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.History;

/// <summary>A check over all histories of a run together. Its collection runs after all others.</summary>
[Collection(AfterAllOthers)]
public sealed class JudgedOperationsTests
{
    private const string AfterAllOthers = "after all others";

    // Even on two busy processors two to three times as many operations are made; with KV_LONG=1 five times as many are required.
    private const int LeastOfAllTests = 40_000;
    private const int LeastOfEveryChange = 4_000;
    private const int LongFactor = 5;

    /// <summary>If only some of the tests of every change ran, the total is not checked.</summary>
    [ToolFact("etcd", "etcdctl", "lincheck")]
    public void Histories_OfAWholeRun_HaveEnoughOperationsInAll()
    {
        if (!HaveRun(Recording().Where(static method => !HasTurn(method) && !HasTurn(method.DeclaringType!))))
            return;
        Histories.LogTotal();
        var least = HaveRun(Recording()) ? LeastOfAllTests : LeastOfEveryChange;
        Assert.InRange(Histories.Judged.Operations, Histories.IsLong ? LongFactor * least : least, int.MaxValue);
    }

    private static bool HaveRun(IEnumerable<MethodInfo> tests) => tests.All(static method => Histories.Judged.Tests.Contains(method.Name));

    private static IEnumerable<MethodInfo> Recording() => typeof(JudgedOperationsTests).Assembly.GetTypes().SelectMany(static type => type.GetMethods())
        .Where(static method => method.GetCustomAttribute<ToolFactAttribute>() is { Skip: null } test
            && test.Programs.Contains("lincheck") && method.DeclaringType != typeof(JudgedOperationsTests));

    private static bool HasTurn(MemberInfo member) => member.IsDefined(typeof(TraitAttribute));

    [CollectionDefinition(AfterAllOthers, DisableParallelization = true)]
    public sealed class Last;
}
