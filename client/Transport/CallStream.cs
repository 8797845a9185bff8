using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Core.Interceptors;
using Grpc.Net.Client;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Client.Transport;

/// <summary>
/// One Exchange stream to a node. It sends the open calls that are in the queue, many in one message, and completes them with the node's replies. While it
/// runs it is the only reader of the queue. It leaves the calls open that had no reply when it broke.
/// </summary>
/// <param name="address">The node's address, for the text that says why the stream broke.</param>
/// <param name="queue">What is to be sent.</param>
/// <param name="open">The calls that wait to be sent or for a reply.</param>
/// <param name="connected">Completes when the connection is established. Nothing is sent before.</param>
internal sealed class CallStream(string address, ChannelReader<CallStream.Entry> queue, OutstandingCalls open, Task connected)
{
    /// <summary>The stream's method. A large message of replies is received by <see cref="LargeMessages"/>.</summary>
    public static readonly Method<ExchangeRequest, ExchangeResponse> Exchange = new(
        MethodType.DuplexStreaming,
        EncodedKvService.ServiceName,
        nameof(Exchange),
        new Marshaller<ExchangeRequest>(Write, static _ => throw new NotSupportedException()),
        new Marshaller<ExchangeResponse>(static (_, _) => throw new NotSupportedException(), Read));

    // How long the reader may take to see the end that a write has seen already.
    private static readonly TimeSpan EndWait = TimeSpan.FromSeconds(1);

    // Another cluster, which has this address now, refused the stream, so it has read none of the calls.
    private bool _isRefused;

    /// <summary>Opens the stream and runs it until it breaks. Returns why it did.</summary>
    public async Task<string> RunAsync(GrpcChannel channel, Metadata? header, CancellationToken cancellationToken)
    {
        using var broken = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        using var stream = channel.Calls().Intercept(LargeMessages.Instance).AsyncDuplexStreamingCall(
            Exchange, null, new CallOptions(header, cancellationToken: broken.Token));
        var receiving = ReceiveAsync(stream.ResponseStream, broken.Token);
        var sending = SendAsync(stream.RequestStream, broken.Token);
        var first = await Task.WhenAny(receiving, sending).ConfigureAwait(false);
        // A write may fail with the status of the stream's end before the details of the status can be read. The reader gets both.
        if (first == sending && await Task.WhenAny(receiving, Task.Delay(EndWait, broken.Token)).ConfigureAwait(false) == receiving)
            first = receiving;
        await broken.CancelAsync().ConfigureAwait(false);
        // Waits for both sides, whichever ended first, so that the next stream alone uses the queue.
        Task both = Task.WhenAll(receiving, sending);
        await both.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        var reason = await first.ConfigureAwait(false);
        // Calls that were sent may be made elsewhere, also those that were gathered after the refusal had been read.
        if (_isRefused)
            open.FailAll(reason, isRefused: true);
        return reason;
    }

    private static void Write(ExchangeRequest message, SerializationContext context)
    {
        context.SetPayloadLength(message.CalculateSize());
        message.WriteTo(context.GetBufferWriter());
        context.Complete();
    }

    private static ExchangeResponse Read(DeserializationContext context)
    {
        if (LargeMessages.TakeInsteadOf(context) is not { } large)
            return ExchangeResponse.Parser.ParseFrom(context.PayloadAsReadOnlySequence());
        var replies = ExchangeResponse.Parser.ParseFrom(large.Written);
        large.Return();
        return replies;
    }

    private async Task<string> SendAsync(IClientStreamWriter<ExchangeRequest> requests, CancellationToken cancellationToken)
    {
        var gathered = new GatheredCalls(queue, open);
        try
        {
            await connected.WaitAsync(cancellationToken).ConfigureAwait(false);
            while (await queue.WaitToReadAsync(cancellationToken).ConfigureAwait(false))
            {
                if (!gathered.TryGather())
                    continue;
                // A write to a dead connection may never end by itself, and the end of the stream must not wait for it. The message is not used again then.
                await requests.WriteAsync(gathered.Message, cancellationToken).WaitAsync(cancellationToken).ConfigureAwait(false);
                gathered.Clear();
            }
            return "the client is closed";
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException or InvalidOperationException or IOException)
        {
            return Break(failure);
        }
    }

    private async Task<string> ReceiveAsync(IAsyncStreamReader<ExchangeResponse> responses, CancellationToken cancellationToken)
    {
        try
        {
            while (await responses.MoveNext(CancellationToken.None).WaitAsync(cancellationToken).ConfigureAwait(false))
            {
                foreach (var reply in responses.Current.Replies)
                    open.Complete(reply);
            }
            return $"{address} ended the stream";
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException or IOException)
        {
            return Break(failure);
        }
    }

    /// <summary>Says why the stream broke. The status of its end is seen by a write as well as by a read, whichever comes first.</summary>
    private string Break(Exception failure)
    {
        if (failure is RpcException refusal && ClusterHeader.IsForeign(refusal))
            _isRefused = true;
        return failure is RpcException { Status.Detail: { Length: > 0 } detail } ? $"{address}: {detail}" : $"{address}: {failure.Message}";
    }

    /// <summary>What the stream is to send: a call, or that a call which was sent has been given up.</summary>
    /// <param name="Call">The call. Until it is sent it is not used for another, because only a reply returns it to the pool.</param>
    /// <param name="GivenUp">Without a call: the id of the one that was given up.</param>
    internal readonly record struct Entry(PendingCall? Call, ulong GivenUp);
}
