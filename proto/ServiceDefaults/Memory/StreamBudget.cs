// The part of a budget that one stream holds. Used under the stream's lock.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>
/// Takes from a budget in pieces, so that a stream of small calls does not touch the shared counter with each of them. The budget is the process's; how much
/// of it one caller or one shard may hold: <see cref="Exchanges.ExchangePlaces"/> and <see cref="FairPlaces"/>.
/// </summary>
internal struct StreamBudget(ByteBudget budget)
{
    private const int PieceBytes = 64 << 10;

    private long _taken;

    /// <summary>Number of bytes that the stream holds.</summary>
    public long Used { get; private set; }

    /// <summary>Adds bytes if the budget has room.</summary>
    public bool TryUse(long bytes)
    {
        var missing = Used + bytes - _taken;
        if (missing > 0 && !TryGrow(missing, bytes <= ByteBudget.SmallBytes))
            return false;
        Used += bytes;
        return true;
    }

    /// <summary>Adds bytes even if the budget has no room.</summary>
    public void Use(long bytes)
    {
        if (TryUse(bytes))
            return;
        var missing = Used + bytes - _taken;
        budget.Take(missing);
        _taken += missing;
        Used += bytes;
    }

    /// <summary>Subtracts bytes.</summary>
    public void Free(long bytes)
    {
        Used -= bytes;
        // One piece is kept while something is held, so that it need not be taken again for each call.
        var kept = Used == 0 ? 0 : Used + PieceBytes;
        if (_taken <= kept)
            return;
        budget.GiveBack(_taken - kept);
        _taken = kept;
    }

    private bool TryGrow(long missing, bool isSmall)
    {
        if (missing < PieceBytes && budget.TryTake(PieceBytes, isSmall))
        {
            _taken += PieceBytes;
            return true;
        }
        if (!budget.TryTake(missing, isSmall))
            return false;
        _taken += missing;
        return true;
    }
}
