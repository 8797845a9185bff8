namespace KvCluster.Tests.Storage.Schedules.Stepped;

/// <inheritdoc cref="Volatile"/>
internal static class Interlocked
{
    public static void MemoryBarrier() => Schedule.BeforeAccess();

    public static long Read(ref readonly long location) => Volatile.Read(in location);

    public static int Increment(ref int location) => Add(ref location, 1);

    public static long Increment(ref long location) => Add(ref location, 1);

    public static ulong Increment(ref ulong location)
    {
        Schedule.BeforeAccess();
        return ++location;
    }

    public static int Decrement(ref int location) => Add(ref location, -1);

    public static long Decrement(ref long location) => Add(ref location, -1);

    public static int Add(ref int location, int value)
    {
        Schedule.BeforeAccess();
        return location += value;
    }

    public static long Add(ref long location, long value)
    {
        Schedule.BeforeAccess();
        return location += value;
    }

    public static ulong And(ref ulong location, ulong value)
    {
        var before = Volatile.Read(in location);
        location = before & value;
        return before;
    }

    public static ulong Or(ref ulong location, ulong value)
    {
        var before = Volatile.Read(in location);
        location = before | value;
        return before;
    }

    public static T Exchange<T>(ref T location, T value)
    {
        var before = Volatile.Read<T>(in location);
        location = value;
        return before;
    }

    public static int Exchange(ref int location, int value) => Exchange<int>(ref location, value);

    public static long Exchange(ref long location, long value) => Exchange<long>(ref location, value);

    public static T CompareExchange<T>(ref T location, T value, T comparand)
    {
        var before = Volatile.Read<T>(in location);
        if (typeof(T).IsValueType ? EqualityComparer<T>.Default.Equals(before, comparand) : ReferenceEquals(before, comparand))
            location = value;
        return before;
    }

    public static int CompareExchange(ref int location, int value, int comparand) => CompareExchange<int>(ref location, value, comparand);

    public static long CompareExchange(ref long location, long value, long comparand) => CompareExchange<long>(ref location, value, comparand);

    public static ulong CompareExchange(ref ulong location, ulong value, ulong comparand) => CompareExchange<ulong>(ref location, value, comparand);
}
