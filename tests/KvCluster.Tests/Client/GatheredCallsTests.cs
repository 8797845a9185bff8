using System.Threading.Channels;
using Google.Protobuf;
using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Tests.Client;

/// <summary>The messages in which a stream sends calls. They are one object, which is used again for each.</summary>
public sealed class GatheredCallsTests
{
    private const int CallsPerMessageMax = 512;

    private readonly Channel<CallStream.Entry> _queue = Channel.CreateUnbounded<CallStream.Entry>();
    private readonly OutstandingCalls _open = new(4 * CallsPerMessageMax, static _ => { });
    private readonly GatheredCalls _gathered;

    public GatheredCallsTests() => _gathered = new GatheredCalls(_queue.Reader, _open);

    [Fact]
    public void Message_AfterAnotherOne_HasNothingOfIt()
    {
        var put = PendingCall.Rent(Method.Put, ByteString.CopyFromUtf8("put"), new(7), 3, long.MaxValue);
        (put.Traceparent, put.ReplyBytesMax) = ("00-1-1-01", 9);
        Enqueue(put);
        var get = Get();
        Enqueue(get);
        Assert.True(_queue.Writer.TryWrite(new CallStream.Entry(null, 5)));
        Assert.True(_gathered.TryGather());
        var sent = new Call
        {
            Id = put.Id,
            Method = Method.Put,
            Request = put.Request,
            TimeoutMs = uint.MaxValue,
            Shard = 7,
            Generation = 3,
            Traceparent = "00-1-1-01",
            ReplyBytesMax = 9,
        };
        Assert.Equal(new ExchangeRequest { Calls = { sent, MessageOf(get) }, Cancelled = { 5 } }, _gathered.Message);
        _gathered.Clear();
        Assert.False(_gathered.TryGather());
        var later = Get();
        Enqueue(later);
        Assert.True(_gathered.TryGather());
        Assert.Equal(new ExchangeRequest { Calls = { MessageOf(later) } }, _gathered.Message);
    }

    /// <summary>A stream that is idle after a write of some MiB must not keep them.</summary>
    [Fact]
    public void Clear_AfterACall_KeepsNoRequest()
    {
        Enqueue(PendingCall.Rent(Method.Put, ByteString.CopyFromUtf8("put"), new(7), 3, long.MaxValue));
        Assert.True(_gathered.TryGather());
        var sent = Assert.Single(_gathered.Message.Calls);
        Assert.Equal(ByteString.CopyFromUtf8("put"), sent.Request);
        _gathered.Clear();
        Assert.Empty(sent.Request);
    }

    [Fact]
    public void Messages_AfterTheFirst_MakeNoObjectForACall()
    {
        const int Messages = 100;
        var allocated = 0L;
        for (var message = 0; message <= Messages; message++)
        {
            var calls = Enumerable.Range(0, CallsPerMessageMax).Select(static _ => Get()).ToList();
            calls.ForEach(Enqueue);
            var bytes = Allocations.Of(() => Assert.True(_gathered.TryGather()));
            Assert.Equal(CallsPerMessageMax, _gathered.Message.Calls.Count);
            _gathered.Clear();
            foreach (var call in calls)
                _open.Withdraw(call.Id);
            if (message > 0)
                allocated += bytes;
        }
        // Less than half of the smallest object with the fields of a call.
        Assert.InRange(allocated, 0, Messages * CallsPerMessageMax * 24L);
    }

    private static PendingCall Get() => PendingCall.Rent(Method.Get, ByteString.CopyFromUtf8("get"), new(1), 1, long.MaxValue);

    private static Call MessageOf(PendingCall get) => new()
    {
        Id = get.Id,
        Method = Method.Get,
        Request = get.Request,
        TimeoutMs = uint.MaxValue,
        Shard = 1,
        Generation = 1,
    };

    private void Enqueue(PendingCall call)
    {
        Assert.True(_open.TryTakePlace(call));
        _open.Add(call);
        Assert.True(_queue.Writer.TryWrite(new CallStream.Entry(call, default)));
    }
}
