using System.Security.Cryptography;
using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Processes;
using KvCluster.V1;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// F43 with real processes: strangers with a plain gRPC client, at a node and through a router, want another client's session or all sessions.
/// </summary>
[Trait("Turn", "3")]
public sealed class SessionFaultTests
{
    private const int Changes = 20;

    /// <summary>More than a shard's maximum (StoreOptions.SessionsMax).</summary>
    private const int SessionsOfTheGreedy = 4_096 + 200;

    [Fact]
    public async Task F43_AnothersSessionAndSequence_AreRefused_AndTheOwnersWritesAreAppliedOnce()
    {
        using var folder = new TemporaryDirectory();
        await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), "--processes");
        using var routed = GrpcChannel.ForAddress(cluster.RouterAddress);
        using var another = GrpcChannel.ForAddress(cluster.RouterAddress);
        var (victim, stranger) = (new Kv.KvClient(routed.Calls()), new Kv.KvClient(another.Calls()));
        var opened = await UntilOpenAsync(victim);

        for (var sequence = 1ul; sequence <= Changes; sequence++)
        {
            // First the stranger, who knows everything that the victim's session shows to others: shard, sequence, the etag of its opening.
            foreach (var guess in (byte[][])[RandomNumberGenerator.GetBytes(16), EtagBytes(opened.Position.Etag), (await UntilOpenAsync(stranger)).Session
                .ToByteArray()])
            {
                var foreign =
                    new PutRequest { Key = Bytes("stolen"), Value = Bytes("stranger"), RequestId = IdOf(opened, sequence, ByteString.CopyFrom(guess)) };
                if (await ReasonAsync(stranger, foreign) is { } reason)
                    Assert.Equal("SESSION_EXPIRED", reason);
            }

            var put = new PutRequest { Key = Bytes($"own-{sequence}"), Value = Bytes("victim"), RequestId = IdOf(opened, sequence, opened.Session) };
            var first = await UntilAnsweredAsync(() => victim.PutAsync(put, deadline: Soon));
            Assert.Equal(first, await UntilAnsweredAsync(() => victim.PutAsync(put, deadline: Soon)));
            var read = await UntilAnsweredAsync(() => victim.GetAsync(new GetRequest { Key = put.Key }, deadline: Soon));
            Assert.Equal((put.Value, first.Position.Etag), (read.Value, read.Etag));
        }

        // A different change under a used sequence is not a repetition.
        Assert.Equal("SEQUENCE_REUSED", await ReasonAsync(
            victim, new PutRequest { Key = Bytes("own-1"), Value = Bytes("another"), RequestId = IdOf(opened, Changes, opened.Session) }));
        Assert.Equal(Bytes("victim"), (await UntilAnsweredAsync(() => victim.GetAsync(new GetRequest { Key = Bytes("own-1") }, deadline: Soon))).Value);
    }

    /// <summary>One connection takes every session of a shard and asks for more. Another one still gets its session at once.</summary>
    [Fact]
    public async Task F43_OneClientThatOpensSessionsWithoutEnd_LeavesPlacesForOthers()
    {
        using var folder = new TemporaryDirectory();
        await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), "--processes");
        using var routed = GrpcChannel.ForAddress(cluster.RouterAddress);
        using var another = GrpcChannel.ForAddress(cluster.RouterAddress);
        var (greedy, modest) = (new Kv.KvClient(routed.Calls()), new Kv.KvClient(another.Calls()));
        await UntilOpenAsync(greedy);

        var busy = 0;
        // Again where it took so long that the first of them have expired.
        await Eventually.TrueAsync(
            async () =>
            {
                await Parallel.ForAsync(0, SessionsOfTheGreedy, new ParallelOptions { MaxDegreeOfParallelism = 64 }, async (_, _) =>
                {
                    try
                    {
                        await greedy.OpenSessionAsync(new OpenSessionRequest { Key = Bytes("k") }, deadline: DateTime.UtcNow.AddSeconds(5));
                    }
                    catch (RpcException failure) when (failure.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded or StatusCode.Unknown)
                    {
                        Interlocked.Increment(ref busy);
                    }
                });
                return busy > 0;
            },
            "the shard accepts no more sessions than its maximum");

        for (var count = 0; count < 20; count++)
        {
            var opened = await UntilOpenAsync(modest);
            await UntilAnsweredAsync(
                () => modest.PutAsync(new PutRequest { Key = Bytes($"modest-{count}"), RequestId = IdOf(opened, 1, opened.Session) }, deadline: Soon));
        }
    }

    private static DateTime Soon => DateTime.UtcNow.AddSeconds(2);

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);

    private static byte[] EtagBytes(V1.Etag etag) => [.. BitConverter.GetBytes(etag.Epoch), .. BitConverter.GetBytes(etag.Change)];

    private static RequestId IdOf(OpenSessionResponse opened, ulong sequence, ByteString session) =>
        new() { Session = session, Sequence = sequence, LowestOpen = sequence, Shard = opened.Position.Shard };

    // Null for the stranger's own session, in which it may do anything.
    private static async Task<string?> ReasonAsync(Kv.KvClient client, PutRequest put)
    {
        try
        {
            await UntilAnsweredAsync(() => client.PutAsync(put, deadline: Soon));
            return null;
        }
        catch (RpcException refused)
        {
            return refused.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason;
        }
    }

    private static Task<OpenSessionResponse> UntilOpenAsync(Kv.KvClient client) =>
        UntilAnsweredAsync(() => client.OpenSessionAsync(new OpenSessionRequest { Key = Bytes("k") }, deadline: Soon));

    private static Task<T> UntilAnsweredAsync<T>(Func<AsyncUnaryCall<T>> call) => Eventually.AnsweredAsync(
        () => call().ResponseAsync, static failure => failure.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded or StatusCode.Unknown);
}
