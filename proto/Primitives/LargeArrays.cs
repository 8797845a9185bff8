namespace KvCluster;

/// <summary>
/// Arrays of large messages that are not in use any more. The garbage collector frees such arrays late, so a new one for each message of some MiB would take
/// many times what is in use. They are kept by weak references: until the next full collection they are used again, and an idle process keeps none. Any thread.
/// </summary>
internal static class LargeArrays
{
    private const int KeptMax = 64;

    /// <summary>Lengths are multiples of an eighth of a power of two, so that messages of about the same size can follow each other.</summary>
    private const int Steps = 8;

    private static readonly Lock Gate = new();
    private static readonly List<WeakReference<byte[]>> Kept = [];

    /// <summary>An array of at least this length, and not much longer. Its content is undefined.</summary>
    public static byte[] Rent(int lengthMin)
    {
        lock (Gate)
        {
            byte[]? best = null;
            for (var place = Kept.Count - 1; place >= 0; place--)
            {
                if (!Kept[place].TryGetTarget(out var kept))
                    RemoveLocked(place);
                else if (kept.Length >= lengthMin && kept.Length / 2 <= lengthMin && (best is null || kept.Length < best.Length))
                    best = kept;
            }
            if (best is not null)
            {
                RemoveLocked(Kept.FindIndex(one => one.TryGetTarget(out var kept) && kept == best));
                return best;
            }
        }
        return GC.AllocateUninitializedArray<byte>(Rounded(lengthMin));
    }

    /// <summary>Nobody uses this array any more.</summary>
    public static void Return(byte[] array)
    {
        lock (Gate)
        {
            if (Kept.Count >= KeptMax)
                RemoveLocked(0);
            Kept.Add(new WeakReference<byte[]>(array));
        }
    }

    private static void RemoveLocked(int place)
    {
        Invariant.CheckHeld(Gate);
        Kept[place] = Kept[^1];
        Kept.RemoveAt(Kept.Count - 1);
    }

    private static int Rounded(int lengthMin)
    {
        var step = Math.Max(1L, (long)System.Numerics.BitOperations.RoundUpToPowerOf2((uint)lengthMin) / (2 * Steps));
        return (int)Math.Min((lengthMin + step - 1) / step * step, Array.MaxLength);
    }
}
