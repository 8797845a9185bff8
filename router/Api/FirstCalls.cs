using Google.Protobuf;
using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Router.Api;

/// <summary>
/// The first calls of a router, which it makes to itself, so that no caller pays for them: the runtime compiles what they need, which takes a fifth of a second
/// of processor time, and several times as long where other programs start at the same moment, as in a rolling upgrade.
/// </summary>
internal static class FirstCalls
{
    /// <summary>A router that cannot reach itself or a leader is ready without.</summary>
    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(5);

    /// <summary>Reads a key, which need not exist, by a call of its own and by an exchange. Changes nothing.</summary>
    /// <param name="router">Makes calls to the router.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>Why the calls failed; null if they did not.</returns>
    public static async Task<string?> MakeAsync(CallInvoker router, CancellationToken cancellationToken)
    {
        var kv = new Kv.KvClient(router);
        var read = new GetRequest { Key = ByteString.CopyFromUtf8("first") };
        var options = new CallOptions(deadline: DateTime.UtcNow + Limit, cancellationToken: cancellationToken);
        try
        {
            await kv.GetAsync(read, options).ConfigureAwait(false);
            using var exchange = kv.Exchange(options);
            var call = new Call { Id = 1, Method = Method.Get, Request = read.ToByteString() };
            await exchange.RequestStream.WriteAsync(new ExchangeRequest { Calls = { call } }, cancellationToken).ConfigureAwait(false);
            await exchange.RequestStream.CompleteAsync().ConfigureAwait(false);
            while (await exchange.ResponseStream.MoveNext(cancellationToken).ConfigureAwait(false))
            {
            }
            return null;
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException)
        {
            return failure.Message;
        }
    }
}
