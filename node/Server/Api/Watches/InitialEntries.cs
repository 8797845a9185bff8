using KvCluster.Node.Watching;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Trees;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Watches;

/// <summary>Encodes the entries of a snapshot that a watch begins with, as much at a time as there is room for. One thread at a time.</summary>
/// <param name="cursor">Is before the first entry.</param>
/// <param name="query">What is left out.</param>
/// <param name="through">The last key that was sent before; empty: none was.</param>
internal sealed class InitialEntries(Cursor cursor, WatchQuery query, ReadOnlyMemory<byte> through)
{
    /// <summary>What <see cref="WatchMessages.MarkInitial"/> adds at most.</summary>
    public const int EndBytes = KvLimits.KeyBytesMax + 128;

    private bool _isAtEntry;

    /// <summary>The last key of the last message.</summary>
    public ReadOnlyMemory<byte> Through { get; private set; } = through;

    /// <summary>Whether there are no more.</summary>
    public bool AreComplete { get; private set; }

    /// <summary>What the next entry takes, if it was too large for the last message.</summary>
    public int NextBytes { get; private set; }

    /// <summary>Appends entries to a message.</summary>
    /// <param name="message">The message.</param>
    /// <param name="bytesMax">Its most bytes. One entry may be larger only if it is the first and was not tried before.</param>
    public void Fill(MessageBytes message, int bytesMax)
    {
        byte[]? last = null;
        NextBytes = 0;
        while (_isAtEntry || cursor.MoveNext())
        {
            var value = KvValue.Read(query.KeysOnly ? cursor.Beginning(KvValue.HeaderBytesMax) : cursor.Value, out var etag);
            var bytes = WatchMessages.SizeOfEntry(cursor.Key, query.KeysOnly ? default : value);
            _isAtEntry = message.Count + bytes > bytesMax;
            if (_isAtEntry)
            {
                NextBytes = bytes;
                Through = last ?? Through;
                return;
            }
            last = cursor.Key.ToArray();
            // An entry is copied once more than in a scan, which is rare.
            var entry =
                new WatchEvent { Kind = EventKind.Put, Reason = EventReason.User, Etag = etag, Key = last, Value = query.KeysOnly ? default : value.ToArray() };
            WatchMessages.Append(message, entry, query);
        }
        (Through, AreComplete) = (last ?? Through, true);
    }
}
