using System.Reflection;
using System.Text.RegularExpressions;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Tests.House;
using KvCluster.V1;

namespace KvCluster.Tests.Client;

/// <summary>What a program sees of errors: reasons by name, and an exception of its own where a program has something to do about it.</summary>
public sealed partial class ReasonsTests
{
    private static readonly Dictionary<string, string> Constants = typeof(KvReasons).GetFields(BindingFlags.Public | BindingFlags.Static)
        .ToDictionary(static field => field.Name, static field => (string)field.GetRawConstantValue()!);

    /// <summary>Programs compared with texts of their own, from a file that is not in the package.</summary>
    [Fact]
    public void Reasons_AreThoseOfTheContract_AndOfTheLibrary() => Assert.Equal(
        ReasonTests.OfContract().Concat(ReasonTests.OfOperators()).Concat(["TLS_FILE_UNUSABLE", "CACHE_FULL"]).Distinct().Order(StringComparer.Ordinal),
        Constants.Values.Order(StringComparer.Ordinal));

    [Fact]
    public void Reasons_HaveTheNamesOfTheirValues() => Assert.All(
        Constants, static reason => Assert.Equal(reason.Value, Border().Replace(reason.Key, "_").ToUpperInvariant()));

    public static TheoryData<string, int, Type> TypedRefusals => new()
    {
        { "CONDITION_FAILED", (int)StatusCode.FailedPrecondition, typeof(KvConditionFailedException) },
        { "SHARDS_DIFFER", (int)StatusCode.FailedPrecondition, typeof(KvShardsDifferException) },
        { "NO_OWNER", (int)StatusCode.FailedPrecondition, typeof(KvNoOwnerException) },
        { "NOT_A_NUMBER", (int)StatusCode.FailedPrecondition, typeof(KvException) },
        { "SNAPSHOT_TOO_OLD", (int)StatusCode.Aborted, typeof(KvSnapshotTooOldException) },
        { "COMPACTED", (int)StatusCode.OutOfRange, typeof(KvCompactedException) },
        { "KEY_EMPTY", (int)StatusCode.InvalidArgument, typeof(KvInvalidRequestException) },
        { "LINEAGE_CHANGED", (int)StatusCode.FailedPrecondition, typeof(KvLineageChangedException) },
    };

    [Theory]
    [MemberData(nameof(TypedRefusals))]
    public async Task Refusal_HasTheExceptionOfItsReason(string reason, int code, Type expected)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = cluster.Connect();
        cluster.Nodes[0].Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(call, (StatusCode)code, reason));
        var failure = await Assert.ThrowsAnyAsync<KvException>(() => client.PutAsync("k", "v").AsTask());
        Assert.IsType(expected, failure);
        Assert.Equal((reason, ChangeOutcome.NotApplied), (failure.Reason, failure.Outcome));
    }

    [Fact]
    public async Task ShardsDiffer_NamesTheShards()
    {
        await using var cluster = await FakeCluster.StartAsync(1, "m");
        await using var client = cluster.Connect();
        cluster.Nodes[0].Script = call => Task.FromResult<Reply?>(FakeNode.Refuse(
            call, StatusCode.FailedPrecondition, "SHARDS_DIFFER", details: new RouteHint { Routes = { cluster.ToMap().Shards } }));
        var write = new KvWrite().Put("a", "1").Put("z", "1");
        var failure = await Assert.ThrowsAsync<KvShardsDifferException>(() => client.WriteAsync(write).AsTask());
        Assert.Equal("1 2", string.Join(' ', failure.Shards));
    }

    [GeneratedRegex(@"(?<=[a-z])(?=[A-Z])|(?<=A)(?=[A-Z][a-z])")]
    private static partial Regex Border();
}
