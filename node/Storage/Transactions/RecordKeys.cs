using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Transactions;

/// <summary>Provides what records will change when they are applied, for <see cref="PathPrefetch"/>, on its executor.</summary>
/// <param name="bodies">Their bodies; empty for one that is not in memory.</param>
internal sealed class RecordKeys(ReadOnlyMemory<byte>[] bodies)
{
    private int _body;

    /// <summary>Operations of that body that were passed on.</summary>
    private int _operations;

    /// <inheritdoc cref="PageKeysFill"/>
    public bool Fill(in ReadSnapshot snapshot, PageKeys keys, int bytesMax)
    {
        for (; _body < bodies.Length; (_body, _operations) = (_body + 1, 0))
        {
            if (!bodies[_body].IsEmpty && !TryFill(bodies[_body].Span, keys, bytesMax))
                return true;
        }
        return false;
    }

    /// <summary>False if there was no room for all.</summary>
    private bool TryFill(ReadOnlySpan<byte> body, PageKeys keys, int bytesMax)
    {
        using var payload = new RecordPayload(body);
        var reader = new OperationReader(payload.Operations);
        for (var index = 0; reader.MoveNext(); index++)
        {
            if (index < _operations)
                continue;
            if (keys.Bytes >= bytesMax)
                return false;
            keys.Add(reader);
            _operations++;
        }
        return true;
    }
}
