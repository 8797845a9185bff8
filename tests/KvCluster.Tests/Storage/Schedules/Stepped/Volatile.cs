namespace KvCluster.Tests.Storage.Schedules.Stepped;

/// <summary>In place of the framework's type of that name in the engine under a <see cref="Schedule"/>: each access is a switch point.</summary>
internal static class Volatile
{
    public static T Read<T>(ref readonly T location)
    {
        Schedule.BeforeAccess();
        return location;
    }

    public static bool Read(ref readonly bool location) => Read<bool>(in location);

    public static int Read(ref readonly int location) => Read<int>(in location);

    public static long Read(ref readonly long location) => Read<long>(in location);

    public static ulong Read(ref readonly ulong location) => Read<ulong>(in location);

    public static nint Read(ref readonly nint location) => Read<nint>(in location);

    public static void Write<T>(ref T location, T value)
    {
        Schedule.BeforeAccess();
        location = value;
    }

    public static void Write(ref bool location, bool value) => Write<bool>(ref location, value);

    public static void Write(ref int location, int value) => Write<int>(ref location, value);

    public static void Write(ref long location, long value) => Write<long>(ref location, value);

    public static void Write(ref ulong location, ulong value) => Write<ulong>(ref location, value);

    public static void Write(ref uint location, uint value) => Write<uint>(ref location, value);

    public static void Write(ref nint location, nint value) => Write<nint>(ref location, value);
}
