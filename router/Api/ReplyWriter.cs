using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Router.Api;

/// <summary>Writes the replies of one exchange, many in one message. Replies are added by any thread and written by one loop.</summary>
/// <param name="responses">The stream to the caller.</param>
/// <param name="process">The process's memory for replies. A caller that does not read is given up sooner while it is short.</param>
/// <param name="written">Called with the bytes of the replies of each message that was written.</param>
internal sealed class ReplyWriter(IServerStreamWriter<MessageBytes> responses, ByteBudget process, Action<long> written)
{
    private const int RepliesPerMessageMax = 512;

    /// <summary>Small replies are gathered until a message has this many bytes.</summary>
    private const int GatheredBytes = 256 << 10;

    // Bounded by the places of the calls and the budget of replies.
    private readonly Channel<Reply> _replies = Channel.CreateUnbounded<Reply>(new UnboundedChannelOptions { SingleReader = true });

    public void Add(Reply reply) => _replies.Writer.TryWrite(reply);

    /// <summary>Ends the loop when everything is written, or at once with a failure.</summary>
    public void Complete(Exception? failure = null) => _replies.Writer.TryComplete(failure);

    /// <summary>Writes until it is completed, or fails as the stream does.</summary>
    public async Task RunAsync(CancellationToken broken)
    {
        while (await _replies.Reader.WaitToReadAsync(broken).ConfigureAwait(false))
        {
            var message = Gather(out var bytes);
            if (!await StalledWrite.EndsAsync(responses.WriteAsync(message), process).ConfigureAwait(false))
            {
                throw CallStatus.Create(
                    StatusCode.ResourceExhausted, "NOT_READ", "The caller does not read the replies that it requested. "
                        + "Unanswered calls of the stream may have been applied.", "unknown").ToRpcException();
            }
            written(bytes);
        }
    }

    private MessageBytes Gather(out int bytes)
    {
        bytes = 0;
        var gathered = new ExchangeResponse();
        while (bytes < GatheredBytes && gathered.Replies.Count < RepliesPerMessageMax && _replies.Reader.TryPeek(out var next))
        {
            if (bytes > 0 && bytes + ReplyBudget.BytesOf(next) > ExchangeLimits.MessageBytesMax)
                break;
            _replies.Reader.TryRead(out _);
            gathered.Replies.Add(next);
            bytes += ReplyBudget.BytesOf(next);
        }
        var message = MessageBytes.Rent();
        gathered.WriteTo(message.Append(gathered.CalculateSize()));
        return message;
    }
}
