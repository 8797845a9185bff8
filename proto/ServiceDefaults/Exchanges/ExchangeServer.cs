// The server's end of one exchange, at a node and at a router. One loop reads the messages and has their calls started, in order, so that changes keep the
// order in which they came. ExchangeReplies gives the calls their places and sends the replies, which arrive on any thread. Reading and sending end with the
// stream. Many callers may share the stream, as on a router's connection. What one of them asks for may delay the stream or be refused, but never breaks it. No
// call is started while too many replies are not written, which is all that makes the stream wait, or after the stream has broken: a message may have millions.
using Grpc.Core;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.ServiceDefaults.Exchanges;

/// <summary>What a node or a router does with the calls of an exchange. Called by the loop that reads the stream, unless something else is said.</summary>
internal interface IExchangeHandler
{
    /// <summary>The refusal of a read for whose reply there is no memory. Used by any thread.</summary>
    Google.Rpc.Status RepliesWait { get; }

    /// <summary>How a stream ends whose caller does not read its replies. Used by any thread.</summary>
    Google.Rpc.Status NotRead { get; }

    /// <summary>A message has arrived. Its calls are started now, or when there is room for their replies.</summary>
    void Arrived();

    /// <summary>Calls are started next, on this thread until <see cref="Pause"/>.</summary>
    void Begin()
    {
    }

    /// <summary>No further call is started for now.</summary>
    void Pause()
    {
    }

    /// <summary>Starts a call, whose bytes are used until this returns, or refuses it. Its outcome goes to the <see cref="ExchangeReplies"/>.</summary>
    void Start(scoped in CallHead head);

    /// <summary>The caller does not wait for a call any more.</summary>
    void Cancel(ulong id);

    /// <summary>Replies have been written, so fewer are waiting. Called by any thread, with no lock held.</summary>
    void Written()
    {
    }

    /// <summary>Replies could not be sent because of a bug. Returns what the stream ends with. Called by any thread.</summary>
    Exception SendingFailed(Exception failure) => failure;
}

/// <summary>Reads the messages of one exchange, and has their calls started and cancelled.</summary>
internal sealed class ExchangeServer(IExchangeHandler handler, ExchangeReplies replies)
{
    /// <summary>Completes when the caller has completed its side, every call is answered and the replies are written.</summary>
    /// <exception cref="RpcException">The stream broke. Calls that were started continue without an answer.</exception>
    public async Task RunAsync(IAsyncStreamReader<MessageBytes> requests)
    {
        try
        {
            while (await requests.MoveNext(replies.Broken).ConfigureAwait(false))
            {
                var message = requests.Current;
                await StartAllAsync(message).ConfigureAwait(false);
                message.Return();
            }
            replies.CompleteReading();
            await replies.Ended.WaitAsync(replies.Broken).ConfigureAwait(false);
        }
        catch
        {
            // If the stream broke for another reason before, this exception may be a consequence of that.
            var reason = replies.BreakWithoutCaller();
            if (reason is not RpcException { StatusCode: StatusCode.Cancelled })
                throw reason;
            throw;
        }
    }

    private async ValueTask StartAllAsync(MessageBytes message)
    {
        handler.Arrived();
        for (var left = message.Count; left > 0;)
        {
            await replies.RoomAsync().ConfigureAwait(false);
            StartSome(message.Written, ref left);
        }
    }

    private void StartSome(ReadOnlySpan<byte> message, ref int left)
    {
        handler.Begin();
        try
        {
            StartWhileRoom(message, ref left);
        }
        catch (MalformedMessageException)
        {
            throw new RpcException(new Status(StatusCode.InvalidArgument, MalformedMessageException.StreamText));
        }
        finally
        {
            handler.Pause();
        }
    }

    // Starts calls as long as there is room for their replies. The rest of the message, of which so many bytes are left, waits for more. A call may take two
    // bytes in the message and much more when it is open, so nothing is made of those that wait.
    private void StartWhileRoom(ReadOnlySpan<byte> message, ref int left)
    {
        var reader = new WireReader(message[^left..]);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == ExchangeRequest.CancelledFieldNumber)
            {
                CancelAll(ref reader);
                continue;
            }
            if (field != ExchangeRequest.CallsFieldNumber)
            {
                reader.Skip();
                continue;
            }
            handler.Start(CallHead.Read(reader.ReadBytes()));
            left = reader.Left;
            if (!replies.HasRoom())
                return;
        }
        left = 0;
    }

    private void CancelAll(ref WireReader reader)
    {
        if (!reader.IsBytes)
        {
            handler.Cancel(reader.ReadUInt64());
            return;
        }
        var packed = new WireReader(reader.ReadBytes());
        while (packed.Left > 0)
            handler.Cancel(packed.ReadVarint());
    }
}
