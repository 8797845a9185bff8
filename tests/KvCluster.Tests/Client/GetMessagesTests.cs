using Google.Protobuf;
using KvCluster.Client;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Tests.Client;

/// <summary>The messages of a read of one key, which the client encodes and decodes by itself, are those of the contract.</summary>
public sealed class GetMessagesTests
{
    private static readonly Position At = new() { Shard = 7, Etag = new V1.Etag { Epoch = 3, Change = 300 }, Lineage = 0x0123456789ABCDEF };

    private static readonly GetResponse Everything = new()
    {
        Position = new Position(At) { AgeUs = 1_500 },
        Found = true,
        Value = ByteString.CopyFromUtf8("value"),
        Etag = new V1.Etag { Epoch = 2, Change = 200 },
        Life = new Life { LeftMs = 60_000, Owner = new V1.Etag { Epoch = 1, Change = 100 } },
    };

    [Theory]
    [InlineData(0, false, false)]
    [InlineData(16, false, false)]
    [InlineData(2_048, false, true)]
    [InlineData(16, true, false)]
    [InlineData(200, true, true)]
    public void Request_IsThatOfTheContract(int keyBytes, bool hasMode, bool withLife)
    {
        var key = new byte[keyBytes];
        Array.Fill(key, (byte)'k');
        var read = hasMode ? new ReadOptions { Mode = ReadMode.Session, Seen = { At, At, At } } : null;
        var request = GetRequest.Parser.ParseFrom(GetMessages.Encode(key, read, withLife));
        Assert.Equal(new GetRequest { Key = ByteString.CopyFrom(key), Read = read, WithLife = withLife }, request);
    }

    [Fact]
    public void Response_WithEverything_IsRead()
    {
        var position = new ShardPosition(7, new Etag(3, 300)) { Lineage = 0x0123456789ABCDEF };
        Assert.Equal(
            new GetResult(true, "value", new Etag(2, 200), position)
            {
                Age = TimeSpan.FromMilliseconds(1.5), Life = new KvLife(TimeSpan.FromMinutes(1), new Etag(1, 100)),
            },
            GetMessages.Decode(Everything.ToByteString()));
        // An age of nothing is one, and so is a time that is over.
        var over = GetMessages.Decode(
            new GetResponse { Position = new Position(At) { AgeUs = 0 }, Found = true, Etag = At.Etag, Life = new Life { LeftMs = 0 } }.ToByteString());
        Assert.Equal(TimeSpan.Zero, over.Age);
        Assert.Equal(TimeSpan.Zero, over.Life.Left);
        Assert.True(over.Found && over.Value.IsEmpty);
    }

    [Fact]
    public void Response_WithoutAKey_HasItsPositionOnly() => Assert.Equal(
        new GetResult(false, default, default, new ShardPosition(7, new Etag(3, 300)) { Lineage = 0x0123456789ABCDEF }),
        GetMessages.Decode(new GetResponse { Position = At }.ToByteString()));

    /// <summary>A newer node may tell more.</summary>
    [Fact]
    public void Response_WithAnUnknownField_IsRead()
    {
        var bytes = (byte[])[.. Everything.ToByteArray(), 0xA2, 0x06, 1, 0];
        Assert.Equal(GetMessages.Decode(Everything.ToByteString()), GetMessages.Decode(UnsafeByteOperations.UnsafeWrap(bytes)));
    }

    [Fact]
    public void Response_ThatIsCutOff_IsMalformed()
    {
        var bytes = new GetResponse { Position = At, Found = true, Value = Everything.Value }.ToByteArray();
        Assert.Throws<MalformedMessageException>(() => GetMessages.Decode(ByteString.CopyFrom(bytes, 0, bytes.Length - 1)));
    }
}
