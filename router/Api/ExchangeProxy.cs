using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Router.Api;

/// <summary>
/// One Exchange stream through a router: each call is forwarded by its own key, answers gather in messages as they come. Reading stops while
/// too many calls are open.
/// </summary>
internal sealed class ExchangeProxy(Forwarding forwarding, RouterOptions options, IServerStreamWriter<MessageBytes> responses, CancellationToken cancellationToken)
{
    private const int OpenCallsMax = 4_096;
    private const int RepliesPerMessageMax = 512;
    private const int MessageBytesMax = 256 << 10;
    private readonly SemaphoreSlim _places = new(OpenCallsMax, OpenCallsMax);
    private readonly Channel<Reply> _replies = Channel.CreateUnbounded<Reply>(new UnboundedChannelOptions { SingleReader = true });

    /// <summary>Ends when the caller has completed its side and every call is answered, or when the stream breaks.</summary>
    public async Task RunAsync(IAsyncStreamReader<MessageBytes> requests)
    {
        var sending = SendAsync();
        try
        {
            while (await requests.MoveNext(cancellationToken).ConfigureAwait(false))
                await StartAllAsync(requests.Current).ConfigureAwait(false);
            for (var taken = 0; taken < OpenCallsMax; taken++)
                await _places.WaitAsync(cancellationToken).ConfigureAwait(false);
        }
        finally
        {
            _replies.Writer.TryComplete();
        }
        await sending.ConfigureAwait(false);
    }

    private async Task StartAllAsync(MessageBytes message)
    {
        ExchangeRequest request;
        try
        {
            // The calls' requests are copied out of the message, so it can be given back.
            request = ExchangeRequest.Parser.ParseFrom(message.Written);
        }
        catch (InvalidProtocolBufferException failure)
        {
            throw new RpcException(new Status(StatusCode.InvalidArgument, failure.Message));
        }
        message.Return();
        foreach (var call in request.Calls)
        {
            await _places.WaitAsync(cancellationToken).ConfigureAwait(false);
            _ = ForwardAsync(call);
        }
    }

    private async Task ForwardAsync(Call call)
    {
        var waitMs = call.TimeoutMs == 0 ? (long)options.Timeout.TotalMilliseconds : call.TimeoutMs;
        try
        {
            var reply = await forwarding.CallAsync(call.Method, call.Request, Environment.TickCount64 + waitMs, cancellationToken).ConfigureAwait(false);
            _replies.Writer.TryWrite(reply.Error is null
                ? new Reply { Id = call.Id, Response = reply.Response }
                : new Reply { Id = call.Id, Code = reply.Error.Code, Status = reply.Error.ToByteString() });
        }
        catch (OperationCanceledException)
        {
            // The stream has ended: nobody waits for the answer.
        }
        finally
        {
            _places.Release();
        }
    }

    private async Task SendAsync()
    {
        while (await _replies.Reader.WaitToReadAsync(cancellationToken).ConfigureAwait(false))
        {
            var gathered = new ExchangeResponse();
            for (var bytes = 0; bytes < MessageBytesMax && gathered.Replies.Count < RepliesPerMessageMax && _replies.Reader.TryRead(out var reply);)
            {
                gathered.Replies.Add(reply);
                bytes += reply.Response.Length;
            }
            var message = MessageBytes.Rent();
            gathered.WriteTo(message.Append(gathered.CalculateSize()));
            await responses.WriteAsync(message).ConfigureAwait(false);
        }
    }
}
