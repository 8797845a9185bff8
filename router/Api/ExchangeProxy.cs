using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Router.Api;

/// <summary>
/// One Exchange stream through a router: each call is forwarded by its own key, answers gather in messages as they come. A call is open until
/// its answer is written, and reading stops while too many are, so that a caller who does not read cannot fill the memory.
/// </summary>
internal sealed class ExchangeProxy : IDisposable
{
    private const int OpenCallsMax = 4_096;
    private const int RepliesPerMessageMax = 512;
    private const int MessageBytesMax = 256 << 10;
    private readonly Forwarding _forwarding;
    private readonly RouterOptions _options;
    private readonly IServerStreamWriter<MessageBytes> _responses;
    private readonly ServerCallContext _context;
    private readonly CancellationTokenSource _broken;
    private readonly SemaphoreSlim _places = new(OpenCallsMax, OpenCallsMax);
    private readonly Channel<Reply> _replies = Channel.CreateUnbounded<Reply>(new UnboundedChannelOptions { SingleReader = true });

    public ExchangeProxy(Forwarding forwarding, RouterOptions options, IServerStreamWriter<MessageBytes> responses, ServerCallContext context)
    {
        _forwarding = forwarding;
        _options = options;
        _responses = responses;
        _context = context;
        _broken = CancellationTokenSource.CreateLinkedTokenSource(context.CancellationToken);
    }

    /// <summary>Ends when the caller has completed its side and every answer is written, or when the stream breaks.</summary>
    public async Task RunAsync(IAsyncStreamReader<MessageBytes> requests)
    {
        var sending = SendAsync();
        try
        {
            while (await requests.MoveNext(_broken.Token).ConfigureAwait(false))
                await StartAllAsync(requests.Current).ConfigureAwait(false);
            for (var taken = 0; taken < OpenCallsMax; taken++)
                await _places.WaitAsync(_broken.Token).ConfigureAwait(false);
        }
        finally
        {
            _replies.Writer.TryComplete();
            await sending.ConfigureAwait(false);
        }
    }

    // Calls that are still under way when the stream broke look at the token later on, so it is cancelled and left to the collector.
    public void Dispose() => _broken.Cancel();

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
            await _places.WaitAsync(_broken.Token).ConfigureAwait(false);
            _ = ForwardAsync(call);
        }
    }

    // Never throws: a failure ends the stream, by way of the sender.
    private async Task ForwardAsync(Call call)
    {
        var waitMs = call.TimeoutMs == 0 ? (long)_options.Timeout.TotalMilliseconds : call.TimeoutMs;
        try
        {
            var reply = await _forwarding.CallAsync(call.Method, call.Request, call.Traceparent, Environment.TickCount64 + waitMs, _context, _broken.Token).ConfigureAwait(false);
            _replies.Writer.TryWrite(reply.Error is null
                ? new Reply { Id = call.Id, Response = reply.Response }
                : new Reply { Id = call.Id, Code = reply.Error.Code, Status = reply.Error.ToByteString() });
        }
        catch (Exception failure)
        {
            _replies.Writer.TryComplete(failure);
        }
    }

    private async Task SendAsync()
    {
        try
        {
            while (await _replies.Reader.WaitToReadAsync(_broken.Token).ConfigureAwait(false))
            {
                var gathered = new ExchangeResponse();
                for (var bytes = 0; bytes < MessageBytesMax && gathered.Replies.Count < RepliesPerMessageMax && _replies.Reader.TryRead(out var reply);)
                {
                    gathered.Replies.Add(reply);
                    bytes += reply.Response.Length;
                }
                var message = MessageBytes.Rent();
                gathered.WriteTo(message.Append(gathered.CalculateSize()));
                await _responses.WriteAsync(message).ConfigureAwait(false);
                _places.Release(gathered.Replies.Count);
            }
        }
        finally
        {
            // Whoever reads or waits for a place stops too.
            await _broken.CancelAsync().ConfigureAwait(false);
        }
    }
}
