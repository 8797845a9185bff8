using Google.Protobuf;
using KvCluster.Client.Transport;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Tests.Client;

/// <summary>
/// A router made an object of each entry and event that it passed on, and encoded them again. They stay bytes, and only what is beside them is read and
/// changed.
/// </summary>
public sealed class StreamMessageTests
{
    private static readonly ScanPage Page = new()
    {
        Position = new Position { Shard = 3, Etag = new V1.Etag { Epoch = 1, Change = 7 } },
        Entries = { Entry("a"), Entry("b") },
        NextStart = ByteString.CopyFromUtf8("c"),
        Snapshot = ByteString.CopyFromUtf8("token"),
    };

    [Fact]
    public void Message_HasItsHead_AndIsEncodedAndDecodedAsItWas()
    {
        var message = StreamMessage<ScanPage>.Of(Page);
        Assert.Equal((2, 1, Page.CalculateSize()), (message.Count, message.Parts, message.Bytes));
        Assert.Equal(new ScanPage { Position = Page.Position, NextStart = Page.NextStart, Snapshot = Page.Snapshot }, message.Head);
        Assert.Equal(Page.ToByteArray(), message.Encode().Written.ToArray());
        Assert.Equal(Page, StreamMessage<ScanPage>.Of(Page).Decode());
    }

    [Fact]
    public void Message_WithAnotherHead_KeepsItsEntries()
    {
        var head = new ScanPage { Position = Page.Position };
        var expected = new ScanPage { Position = Page.Position, Entries = { Page.Entries } };
        Assert.Equal(expected.ToByteArray(), StreamMessage<ScanPage>.Of(Page).WithHead(head).Encode().Written.ToArray());
        Assert.Equal(expected, StreamMessage<ScanPage>.Of(Page).WithHead(head.Clone()).Decode());
    }

    [Fact]
    public void Message_WithoutEntries_IsItsHead()
    {
        var message = StreamMessage<WatchResponse>.Of(new WatchResponse());
        Assert.Equal((0, 0, 0), (message.Count, message.Parts, message.Bytes));
        Assert.Equal(0, message.Encode().Count);
        var changed = StreamMessage<WatchResponse>.Of(new WatchResponse { Initial = true }).WithHead(new WatchResponse { NextBytes = 5 });
        Assert.Equal(new WatchResponse { NextBytes = 5 }, WatchResponse.Parser.ParseFrom(changed.Encode().Written));
    }

    /// <summary>Fields may come in any order, and some of a later version.</summary>
    [Fact]
    public void Message_WithEntriesInSeveralParts_HasAllOfThemInOrder_AndWhatItDoesNotKnow()
    {
        byte[] unknown = [0xF8, 0x7F, 0x01];
        byte[] bytes =
        [
            .. new ScanPage { Entries = { Entry("a"), Entry("b") } }.ToByteArray(),
            .. unknown,
            .. new ScanPage { Position = Page.Position, Entries = { Entry("d") } }.ToByteArray(),
        ];
        var whole = ScanPage.Parser.ParseFrom(bytes);
        Assert.Equal((3, 2), (Received(bytes).Count, Received(bytes).Parts));
        Assert.Equal(whole, Received(bytes).Decode());
        var changed = Received(bytes);
        changed.Head.Snapshot = Page.Snapshot;
        whole.Snapshot = Page.Snapshot;
        Assert.Equal(whole, ScanPage.Parser.ParseFrom(changed.WithHead(changed.Head).Encode().Written));
    }

    [Fact]
    public void Message_ThatIsCutOff_IsMalformed() => Assert.Throws<MalformedMessageException>(() => Received(Page.ToByteArray()[..^1]));

    private static StreamMessage<ScanPage> Received(byte[] bytes)
    {
        var message = MessageBytes.Rent();
        message.Append(bytes);
        return new StreamMessage<ScanPage>(message);
    }

    private static Entry Entry(string key) => new() { Key = ByteString.CopyFromUtf8(key), Value = ByteString.CopyFromUtf8($"of {key}") };
}
