using System.Diagnostics;
using System.Runtime.InteropServices;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>
/// A summary is seen with its reference. Two threads wait for each other up to 400,000 times. Where other programs have the processors too, that took minutes,
/// so they end after some seconds.
/// </summary>
[Collection(AloneCollection.Name)]
public sealed unsafe class PlacedSummaryTests
{
    private static readonly TimeSpan TimeMax = TimeSpan.FromSeconds(8);

    /// <summary>
    /// A reader may look at a reference while a checkpoint's end replaces it. What it sees beside a reference to the file must be the summary of that page, and
    /// not what was there while the page was in memory. Here it is already looking at each reference when the writer replaces it.
    /// </summary>
    [Fact]
    public void StorePlaced_BesideAReader_ShowsTheSummaryWithTheReference()
    {
        const int Pages = 2_000, PagesLeast = 50, Children = 200;
        var memory = (byte*)NativeMemory.AlignedAlloc((Pages + 1) * Page.Bytes, Page.Bytes);
        try
        {
            var target = memory + (Pages * (long)Page.Bytes);
            Page.Format(target, PageType.Leaf, []);
            (Page.Placed(target), Page.Checksum(target), Page.Summary(target)) = (PageRef.ToFile(77), 123_456_789, new SubtreeSummary(42));
            for (var number = 0; number < Pages; number++)
            {
                Page.Format(PageAt(number), PageType.Branch, []);
                for (var child = 0; child < Children; child++)
                    TreePage.InsertChild(PageAt(number), child, child == 0 ? [] : ByteKeys.Of(child), SubtreeLink.InMemory(PageRef.ToScratch(target)));
            }
            // How many references the reader has begun to look at, and whether it looks at no more.
            var (reached, hasEnded) = (0, false);
            var writer = new Thread(() =>
            {
                for (var number = 0; number < Pages; number++)
                {
                    for (var child = 0; child < Children; child++)
                    {
                        for (var tries = 0; Volatile.Read(ref reached) <= (number * Children) + child; tries++)
                        {
                            if (Volatile.Read(ref hasEnded))
                                return;
                            YieldAfterAWhile(tries);
                        }
                        TreePage.StorePlaced(PageAt(number), TreePage.Child(PageAt(number), child), target);
                    }
                }
            });
            writer.Start();
            var (wrong, began) = (0, Stopwatch.GetTimestamp());
            for (var number = 0; number < Pages && (number < PagesLeast || Stopwatch.GetElapsedTime(began) < TimeMax); number++)
            {
                for (var child = 0; child < Children; child++)
                {
                    var link = TreePage.Subtree(PageAt(number), child);
                    Volatile.Write(ref reached, reached + 1);
                    PageLink seen;
                    for (var tries = 0; (seen = PageLink.LoadWhole(&link->Link)).Reference.IsScratch; tries++)
                        YieldAfterAWhile(tries);
                    wrong += (seen.Checksum, link->Summary.Keys) == (123_456_789u, 42ul) ? 0 : 1;
                }
            }
            Volatile.Write(ref hasEnded, true);
            writer.Join();
            Assert.Equal(0, wrong);
        }
        finally
        {
            NativeMemory.AlignedFree(memory);
        }

        byte* PageAt(int number) => memory + (number * (long)Page.Bytes);

        // Not at once: the moment to be seen is shorter than a pause.
        static void YieldAfterAWhile(int tries)
        {
            if (tries > 1_000)
                Thread.Yield();
        }
    }
}
