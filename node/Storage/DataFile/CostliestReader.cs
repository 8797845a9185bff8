namespace KvCluster.Storage.DataFile;

/// <summary>
/// Ends the reader that costs most when readers hold more memory or pages than they may. How old a snapshot may become is up to who keeps it. Writer only.
/// </summary>
/// <param name="readers">The readers of the store.</param>
/// <param name="scratch">The scratch memory that only readers still need.</param>
/// <param name="runs">The pages of the file that only readers still need.</param>
internal sealed class CostliestReader(ReaderSlots readers, RetiredPages<RetiredScratch> scratch, RetiredPages<RetiredRun> runs)
{
    /// <summary>
    /// Asks the reader that holds most to end, if what is held is above a bound without those that were asked before. What it shares with others is theirs
    /// when it is gone, and the next one follows if that is too much. What pins or a checkpoint in progress keep does not count: ending a reader would not
    /// free that.
    /// </summary>
    /// <param name="present">The readers, those that answer for what others hold as well first.</param>
    /// <param name="areDigests">Of digests; otherwise of callers.</param>
    /// <param name="scratchBytesMax">The bound of scratch memory.</param>
    /// <param name="bytesMax">The bound of scratch memory and pages of the file.</param>
    /// <param name="withRuns">Whether it is known at the moment which readers hold pages of the file.</param>
    public void EndIfAbove(List<ReaderSlots.Reader> present, bool areDigests, long scratchBytesMax, long bytesMax, bool withRuns)
    {
        var scratchBytes = Of(scratch.HeldBytes, scratch.DigestBytes);
        var all = scratchBytes + (withRuns ? Of(runs.HeldBytes, runs.DigestBytes) : 0);
        if (scratchBytes <= scratchBytesMax && all <= bytesMax)
            return;
        ReaderSlots.Reader? mostScratch = null, most = null;
        var (mostScratchBytes, mostBytes) = (0L, 0L);
        foreach (var reader in present)
        {
            if (reader.IsDigest != areDigests)
                continue;
            var scratchOf = scratch.HeldBy(reader);
            var allOf = scratchOf + (withRuns ? runs.HeldBy(reader) : 0);
            if (readers.HoldsTooMuchMemory(reader.Slot, reader.Ticket))
                scratchBytes -= scratchOf;
            else if (scratchOf > mostScratchBytes)
                (mostScratch, mostScratchBytes) = (reader, scratchOf);
            if (readers.MustEnd(reader.Slot, reader.Ticket))
                all -= allOf;
            else if (allOf > mostBytes)
                (most, mostBytes) = (reader, allOf);
        }
        if (scratchBytes > scratchBytesMax && mostScratch is { } holder)
            readers.End(holder.Slot, holder.Ticket, forMemory: true);
        else if (all > bytesMax && most is { } pinning)
            readers.End(pinning.Slot, pinning.Ticket);

        long Of(long held, long byDigests) => areDigests ? byDigests : held - byDigests;
    }
}
