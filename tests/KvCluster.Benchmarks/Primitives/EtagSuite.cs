// Suite "etag": the cost of the text of an etag, on one thread, without other load. The budget is 50 ns, that is 20,000 a millisecond, and no allocation.
using System.Diagnostics;

namespace KvCluster.Benchmarks.Primitives;

/// <summary>Formats and parses random etags as UTF-16 and as UTF-8.</summary>
internal static class EtagSuite
{
    private const string Suite = "etag";
    // Etags and both texts together fit in a processor's second cache.
    private const int Etags = 4_096;
    private const int Passes = 250;

    public static Task<IReadOnlyList<BenchmarkRow>> Run(bool quick, Action<string> progress, CancellationToken cancellation)
    {
        var random = new Random(1);
        var etags = new Etag[Etags];
        foreach (ref var etag in etags.AsSpan())
            etag = new Etag((ulong)random.NextInt64(), (ulong)random.NextInt64());
        var (text, utf8) = (new char[Etags * Etag.TextLength], new byte[Etags * Etag.TextLength]);
        // Formatting is first, so that there is text to parse.
        (string Workload, Func<bool> Pass)[] workloads =
        [
            ("format an etag, UTF-16", () => FormatAll(etags, text)),
            ("format an etag, UTF-8", () => FormatAll(etags, utf8)),
            ("parse an etag, UTF-16", () => ParseAll(etags, text)),
            ("parse an etag, UTF-8", () => ParseAll(etags, utf8)),
        ];
        var rows = new List<BenchmarkRow>();
        foreach (var (workload, pass) in workloads)
        {
            progress(workload);
            var rounds = new List<(double Nanoseconds, double Bytes)>();
            // The first rounds run code that is not optimized yet.
            for (var round = quick ? -3 : -10; round < (quick ? 5 : 15); round++)
            {
                cancellation.ThrowIfCancellationRequested();
                var measured = Measure(pass);
                if (round >= 0)
                    rounds.Add(measured);
            }
            rows.Add(BenchmarkRow.Of(Suite, workload, "kvcluster", "ns", [.. rounds.Select(static round => round.Nanoseconds)]));
            rows.Add(BenchmarkRow.Of(Suite, workload, "kvcluster", "bytes/op", [.. rounds.Select(static round => round.Bytes)]));
        }
        return Task.FromResult<IReadOnlyList<BenchmarkRow>>(rows);
    }

    private static (double Nanoseconds, double Bytes) Measure(Func<bool> pass)
    {
        var isRight = true;
        var (allocated, started) = (GC.GetAllocatedBytesForCurrentThread(), Stopwatch.GetTimestamp());
        for (var count = 0; count < Passes; count++)
            isRight &= pass();
        var (elapsed, bytes) = (Stopwatch.GetElapsedTime(started), GC.GetAllocatedBytesForCurrentThread() - allocated);
        const double Operations = (double)Etags * Passes;
        return isRight ? (elapsed.TotalNanoseconds / Operations, bytes / Operations) : throw new InvalidOperationException("A text or an etag is wrong.");
    }

    private static bool FormatAll(Etag[] etags, Span<char> text)
    {
        var isFormatted = true;
        foreach (var etag in etags)
        {
            isFormatted &= etag.TryFormat(text, out var written);
            text = text[written..];
        }
        return isFormatted && text.IsEmpty;
    }

    private static bool FormatAll(Etag[] etags, Span<byte> text)
    {
        var isFormatted = true;
        foreach (var etag in etags)
        {
            isFormatted &= etag.TryFormat(text, out var written);
            text = text[written..];
        }
        return isFormatted && text.IsEmpty;
    }

    private static bool ParseAll(Etag[] etags, ReadOnlySpan<char> text)
    {
        var isParsed = true;
        foreach (var etag in etags)
        {
            isParsed &= Etag.TryParse(text[..Etag.TextLength], null, out var parsed) && parsed == etag;
            text = text[Etag.TextLength..];
        }
        return isParsed;
    }

    private static bool ParseAll(Etag[] etags, ReadOnlySpan<byte> text)
    {
        var isParsed = true;
        foreach (var etag in etags)
        {
            isParsed &= Etag.TryParse(text[..Etag.TextLength], null, out var parsed) && parsed == etag;
            text = text[Etag.TextLength..];
        }
        return isParsed;
    }
}
