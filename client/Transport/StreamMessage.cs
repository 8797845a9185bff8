using Google.Protobuf;
using Grpc.Core;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Client.Transport;

/// <summary>
/// A message of a scan or a watch, which is a <see cref="ScanPage"/> or a <see cref="WatchResponse"/>. Its entries or events, which both have in the same
/// field, stay encoded, so that a router passes them on as they came. Used by one thread at a time, and not after it was encoded or decoded.
/// </summary>
internal sealed class StreamMessage<T>
    where T : class, IMessage<T>, new()
{
    /// <summary>For the streams of nodes and routers.</summary>
    public static readonly Marshaller<StreamMessage<T>> Marshaller = new(
        static (_, _) => throw new NotSupportedException(),
        static context => new StreamMessage<T>(LargeMessages.TakeInsteadOf(context) ?? MessageBytes.Marshaller.ContextualDeserializer(context)));

    private const int ItemsField = ScanPage.EntriesFieldNumber;

    private readonly MessageBytes _bytes;
    // Those that follow each other are one part. A node's message has only one.
    private readonly List<(int Start, int End)> _items = [];
    private bool _isChanged;

    /// <param name="bytes">The encoded message, which belongs to this from now on.</param>
    /// <exception cref="MalformedMessageException">The bytes are not a message.</exception>
    public StreamMessage(MessageBytes bytes)
    {
        _bytes = bytes;
        var written = bytes.Written;
        var reader = new WireReader(written);
        for (int field, at = 0, next = 0; (field = reader.ReadField()) != 0; at = next)
        {
            reader.Skip();
            next = written.Length - reader.Left;
            if (field != ItemsField)
            {
                Head.MergeFrom(written[at..next]);
                continue;
            }
            Count++;
            if (_items.Count > 0 && _items[^1].End == at)
                _items[^1] = (_items[^1].Start, next);
            else
                _items.Add((at, next));
        }
    }

    /// <summary>The message without its entries or events. After a change of it <see cref="WithHead"/> is called.</summary>
    public T Head { get; private set; } = new();

    /// <summary>The number of entries or events.</summary>
    public int Count { get; }

    /// <summary>Of how many parts the message consists, besides its head.</summary>
    public int Parts => _items.Count;

    /// <summary>Its size as it was received.</summary>
    public int Bytes => _bytes.Count;

    /// <summary>A message that was not received.</summary>
    public static StreamMessage<T> Of(T message)
    {
        var bytes = MessageBytes.Rent();
        message.WriteTo(bytes.Append(message.CalculateSize()));
        return new StreamMessage<T>(bytes);
    }

    /// <summary>The entries or events with something else beside them.</summary>
    public StreamMessage<T> WithHead(T head)
    {
        (Head, _isChanged) = (head, true);
        return this;
    }

    /// <summary>One of the parts with the encoded entries or events.</summary>
    public ReadOnlySpan<byte> PartOf(int part) => _bytes.Written[_items[part].Start.._items[part].End];

    /// <summary>The encoded message, which is the caller's.</summary>
    public MessageBytes Encode()
    {
        if (!_isChanged)
            return _bytes;
        var encoded = MessageBytes.Rent();
        Head.WriteTo(encoded.Append(Head.CalculateSize()));
        foreach (var (start, end) in _items)
            encoded.Append(_bytes.Written[start..end]);
        _bytes.Return();
        return encoded;
    }

    /// <summary>The whole message.</summary>
    public T Decode()
    {
        foreach (var (start, end) in _items)
            Head.MergeFrom(_bytes.Written[start..end]);
        _bytes.Return();
        return Head;
    }
}
