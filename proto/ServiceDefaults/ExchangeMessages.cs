// Takes the messages of an exchange apart, at a node and at a router. Used by the loop that reads the stream.
using Grpc.Core;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.ServiceDefaults;

/// <summary>What an exchange does with the calls of its messages.</summary>
internal interface IExchangeCalls
{
    /// <summary>Starts a call, whose bytes are used until this returns. Returns whether there is room for the reply of another one.</summary>
    bool Start(scoped in CallHead head);

    /// <summary>The caller does not wait for a call any more.</summary>
    void Cancel(ulong id);
}

/// <summary>Starts and cancels the calls of a message in their order.</summary>
internal static class ExchangeMessages
{
    /// <summary>Starts calls as long as there is room for their replies. The rest of the message waits for more.</summary>
    /// <param name="calls">The exchange.</param>
    /// <param name="message">The encoded message.</param>
    /// <param name="left">How many bytes at its end are left; at first all, at last none.</param>
    /// <exception cref="RpcException">It is not a message of an exchange.</exception>
    public static void Start(IExchangeCalls calls, ReadOnlySpan<byte> message, ref int left)
    {
        var reader = new WireReader(message[^left..]);
        try
        {
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field == ExchangeRequest.CancelledFieldNumber)
                {
                    CancelAll(calls, ref reader);
                    continue;
                }
                if (field != ExchangeRequest.CallsFieldNumber)
                {
                    reader.Skip();
                    continue;
                }
                var hasRoom = calls.Start(CallHead.Read(reader.ReadBytes()));
                left = reader.Left;
                if (!hasRoom)
                    return;
            }
            left = 0;
        }
        catch (MalformedMessageException)
        {
            throw new RpcException(new Status(StatusCode.InvalidArgument, MalformedMessageException.StreamText));
        }
    }

    private static void CancelAll(IExchangeCalls calls, ref WireReader reader)
    {
        if (!reader.IsBytes)
        {
            calls.Cancel(reader.ReadUInt64());
            return;
        }
        var packed = new WireReader(reader.ReadBytes());
        while (packed.Left > 0)
            calls.Cancel(packed.ReadVarint());
    }
}
