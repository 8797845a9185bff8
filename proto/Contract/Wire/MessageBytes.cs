using System.Buffers;
using System.Collections.Concurrent;
using Grpc.Core;

namespace KvCluster.Wire;

/// <summary>
/// The bytes of one message of the API: a request as received or a response to be sent. Pooled: the service that gets a request returns it, and a response is
/// returned when it has been written to the connection. It has one owner at a time, or several that only read it.
/// </summary>
internal sealed class MessageBytes : IEncodedMessage
{
    /// <summary>A larger message is not pooled. It has an array of <see cref="LargeArrays"/>, which is not much longer.</summary>
    public const int PooledBytesMax = 256 << 10;

    private const int BytesMin = 1 << 10;
    private const int PooledMax = 1_024;

    /// <summary>Passes encoded messages through without decoding or encoding them.</summary>
    public static readonly Marshaller<MessageBytes> Marshaller = new(Write, Read);

    private static readonly ConcurrentQueue<MessageBytes> Pool = new();

    private byte[] _bytes = new byte[BytesMin];
    private int _owners;

    private MessageBytes()
    {
    }

    /// <summary>Number of bytes written.</summary>
    public int Count { get; private set; }

    /// <summary>Set instead of a response: why there is none.</summary>
    public Google.Rpc.Status? Error { get; set; }

    /// <summary>Bytes that its holder took from a budget for it and will return.</summary>
    public int Budgeted { get; set; }

    /// <summary>The bytes written, for a holder that keeps the message out of the pool.</summary>
    public ReadOnlyMemory<byte> Memory => _bytes.AsMemory(0, Count);

    public ReadOnlySpan<byte> Written => _bytes.AsSpan(0, Count);

    public static MessageBytes Rent()
    {
        var message = Pool.TryDequeue(out var pooled) ? pooled : new MessageBytes();
        message._owners = 1;
        return message;
    }

    /// <summary>Adds an owner, who returns it as well. From here on nobody changes it.</summary>
    public MessageBytes Share()
    {
        Interlocked.Increment(ref _owners);
        return this;
    }

    /// <summary>Adds space at the end; the caller must fill all of it.</summary>
    public Span<byte> Append(int count)
    {
        if (_bytes.Length - Count < count)
            Grow(checked((int)Math.Max((uint)_bytes.Length * 2, (uint)(Count + count))));
        Count += count;
        return _bytes.AsSpan(Count - count, count);
    }

    public void Append(ReadOnlySpan<byte> bytes) => bytes.CopyTo(Append(bytes.Length));

    /// <summary>As <see cref="Append(int)"/>, for bytes that are still awaited.</summary>
    public Memory<byte> AppendMemory(int count)
    {
        Append(count);
        return _bytes.AsMemory(Count - count, count);
    }

    public void Clear()
    {
        Count = 0;
        Error = null;
    }

    /// <summary>Returns it to the pool, if there is no other owner; it must not be used afterwards.</summary>
    public void Return()
    {
        if (Interlocked.Decrement(ref _owners) > 0)
            return;
        Clear();
        if (_bytes.Length > PooledBytesMax)
            LargeArrays.Return(_bytes);
        else if (Pool.Count < PooledMax)
            Pool.Enqueue(this);
    }

    private void Grow(int bytesMin)
    {
        var (smaller, larger) = (_bytes, bytesMin > PooledBytesMax ? LargeArrays.Rent(bytesMin) : new byte[bytesMin]);
        Written.CopyTo(larger);
        _bytes = larger;
        if (smaller.Length > PooledBytesMax)
            LargeArrays.Return(smaller);
    }

    private static void Write(MessageBytes message, SerializationContext context)
    {
        context.SetPayloadLength(message.Count);
        var output = context.GetBufferWriter();
        var isTaken = output is IEncodedOutput encoded && encoded.TryTake(message);
        if (!isTaken)
            output.Write(message.Written);
        context.Complete();
        if (!isTaken)
            message.Return();
    }

    private static MessageBytes Read(DeserializationContext context)
    {
        var message = Rent();
        context.PayloadAsReadOnlySequence().CopyTo(message.Append(context.PayloadLength));
        return message;
    }
}
