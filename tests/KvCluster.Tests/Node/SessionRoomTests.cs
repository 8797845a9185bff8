using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Client.Transport;
using KvCluster.Storage.Context;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>
/// A shard with few places for sessions. A program that made a client for each of its requests filled all 4,096 of a shard, and others' changes waited for ten
/// seconds and failed with "The shard's request queue is full".
/// </summary>
public sealed class SessionRoomTests
{
    private const int SessionsMax = 4;

    private static StoreOptions Few => new() { SessionsMax = SessionsMax, SessionIdleMin = TimeSpan.FromHours(1) };

    [Fact]
    public async Task ClientForEachRequest_ThatIsDisposed_LeavesRoomForTheNext()
    {
        // A disposal waits a second for the end of its session, so some sessions remain where a machine stalls. The room is for half of them.
        await using var cluster = await NodeCluster.StartAsync(Few with { SessionsMax = 5 * SessionsMax });
        for (var number = 0; number < 10 * SessionsMax; number++)
        {
            await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
            await client.PutAsync($"key {number}", "value");
        }
    }

    [Fact]
    public async Task Open_WithoutRoom_IsBusyAndNamesTheSessionsAndTheRemedy()
    {
        await using var cluster = await NodeCluster.StartAsync(Few);
        var open = new OpenSessionRequest { Key = ByteString.CopyFromUtf8("k") };
        for (var number = 0; number < SessionsMax; number++)
            await cluster.AskLeaderAsync(kv => kv.OpenSessionAsync(open));
        var refused = await Assert.ThrowsAsync<RpcException>(() => cluster.KvOf(1).OpenSessionAsync(open).ResponseAsync);
        Assert.Equal((StatusCode.Unavailable, "BUSY"), (refused.StatusCode, CallStatus.ReasonOf(refused.GetRpcStatus()!)));
        Assert.Contains("sessions", refused.Status.Detail, StringComparison.Ordinal);
        Assert.Contains("dispose", refused.Status.Detail, StringComparison.Ordinal);
    }
}
