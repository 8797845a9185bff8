using KvCluster.Storage.Context;
using KvCluster.V1;

namespace KvCluster.Node.Telemetry;

/// <summary>Describes the memory of a node's stores, for its status and for <c>kv doctor</c>.</summary>
internal static class MemoryReport
{
    public static NodeMemory Of(MemoryAccount account) => new()
    {
        BudgetBytes = (ulong)account.Budget,
        ChangedPagesBytes = (ulong)account.UsedFor(MemoryUse.ChangedPages),
        ReaderPagesBytes = (ulong)(account.UsedFor(MemoryUse.ReaderPages) + account.UsedFor(MemoryUse.DigestPages)),
        FreePagesBytes = (ulong)account.UsedFor(MemoryUse.FreePages),
        JournalBytes = (ulong)account.UsedFor(MemoryUse.Journal),
        JournalIndexBytes = (ulong)account.UsedFor(MemoryUse.JournalIndex),
        RequestsBytes = (ulong)account.UsedFor(MemoryUse.Requests),
        HeldBackUs = (ulong)account.HeldBack.TotalMicroseconds,
    };
}
