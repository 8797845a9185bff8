using System.Buffers;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Journal;

/// <summary>
/// The record that a leader makes next. Its operations gather in the memory that becomes its body, so that none of them is copied when it is sealed. That
/// memory is the rest of a slab, or that of the body alone if much is expected. Owned by a store; writer executor.
/// </summary>
internal sealed class RecordDraft
{
    /// <summary>Bytes before the operations. A body without a shard time begins a little later.</summary>
    private const int FrontBytes = RecordBody.HeaderBytes + RecordBody.ShardTimeBytes;

    /// <summary>
    /// The least and the most room for what comes while a batch is merged. If it is not enough, what has gathered is copied into larger memory.
    /// </summary>
    private const int MoreBytesMin = 2 << 10;

    /// <inheritdoc cref="MoreBytesMin"/>
    private const int MoreBytesMax = 32 << 10;

    /// <summary>Has room for further bodies. Left to the collector at the end, like all whose bodies are not dropped.</summary>
    private BodySlab? _slab;
    private bool _hasBegun;

    /// <summary>The encoded operations. Nothing is appended to those of a record that is sealed, which stay until the next one begins.</summary>
    public ByteBuffer Operations { get; } = new(0, FrontBytes, RecordBody.TrailerBytes);

    // Whether the operations have not outgrown the slab.
    private bool IsInSlab => _slab is { } slab && slab.Has(Operations.Whole);

    /// <summary>Begins a record, without operations.</summary>
    /// <param name="bytes">About how many bytes of operations it will have.</param>
    public void Begin(int bytes)
    {
        var room = FrontBytes + bytes + Math.Clamp(bytes / 4, MoreBytesMin, MoreBytesMax) + RecordBody.TrailerBytes;
        if (room > BodySlab.BodyBytesMax)
        {
            Operations.MoveTo(GC.AllocateUninitializedArray<byte>(room));
            return;
        }
        if (_slab is { } slab && slab.Rest.Count < room)
        {
            slab.Release();
            _slab = null;
        }
        _slab ??= room <= BodySlab.FirstBytes && !_hasBegun ? BodySlab.First() : BodySlab.Rent();
        _hasBegun = true;
        Operations.MoveTo(_slab.Rest);
    }

    /// <summary>Makes the record's body.</summary>
    /// <param name="previous">The record it is chained to.</param>
    /// <param name="flags">Its kind.</param>
    /// <param name="epoch">The epoch it belongs to.</param>
    /// <param name="operationCount">How many operations have gathered.</param>
    /// <param name="wallTimeMicroseconds">See <see cref="RecordBody"/>, as for the others.</param>
    /// <param name="shardTimeMicroseconds">The shard time, if it is not in place of the wall time.</param>
    /// <param name="compresses">Whether the operations are compressed if that pays. They stay here as they are.</param>
    public VerifiedBody Seal(
        in RecordRef previous,
        RecordFlags flags, ulong epoch, int operationCount, long wallTimeMicroseconds, long shardTimeMicroseconds = 0, bool compresses = false)
    {
        if (compresses && RecordPayload.MayPay(Operations.Written))
        {
            var block = ArrayPool<byte>.Shared.Rent(Operations.Count);
            try
            {
                var length = RecordPayload.Compress(Operations.Written, block);
                if (length > 0)
                {
                    return VerifiedBody.Encode(
                        previous, flags | RecordFlags.Lz4, epoch, operationCount, wallTimeMicroseconds, block.AsSpan(0, length), shardTimeMicroseconds);
                }
            }
            finally
            {
                ArrayPool<byte>.Shared.Return(block);
            }
        }
        var (slab, memory) = (IsInSlab ? _slab : null, TakeMemory());
        var unused = FrontBytes - RecordBody.PayloadStart(flags);
        return VerifiedBody.Seal(memory[unused..], slab, previous, flags, epoch, operationCount, wallTimeMicroseconds, shardTimeMicroseconds);
    }

    /// <summary>The record is sealed, or there is none. Its operations are not read any more, and memory that is only theirs is let go.</summary>
    public void End()
    {
        if (!IsInSlab)
            Operations.Clear(0);
    }

    /// <summary>
    /// The memory of the operations, with that of the header and the checksum. If much less has gathered than was expected, it is a copy, because what is kept
    /// is counted by the lengths of bodies: no body keeps much more than twice its length.
    /// </summary>
    private Memory<byte> TakeMemory()
    {
        var whole = Operations.Whole;
        if (IsInSlab)
            return _slab!.Take(whole.Count);
        return Operations.Capacity > (2 * whole.Count) + MoreBytesMin ? whole.ToArray() : whole;
    }
}
