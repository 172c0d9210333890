"""Names that C++ programs can't use for a class or a namespace, because the language or its library has them.

A generated header is included beside others, and every C++ header includes some of C's, whose names are global. What is
listed is what gcc 12 with glibc 2.36 declares in the global namespace when all headers of C++17, and the commonly used ones
of POSIX, are included; and the macros of C's own headers.
"""

from __future__ import annotations

import re

MACROS = frozenset(
    """
BUFSIZ CHAR_BIT CHAR_MAX CHAR_MIN CLOCKS_PER_SEC DBL_DECIMAL_DIG DBL_DIG DBL_EPSILON DBL_HAS_SUBNORM DBL_MANT_DIG
DBL_MAX DBL_MAX_10_EXP DBL_MAX_EXP DBL_MIN DBL_MIN_10_EXP DBL_MIN_EXP DBL_TRUE_MIN DECIMAL_DIG E2BIG EACCES EADDRINUSE
EADDRNOTAVAIL EADV EAFNOSUPPORT EAGAIN EALREADY EBADE EBADF EBADFD EBADMSG EBADR EBADRQC EBADSLT EBFONT EBUSY
ECANCELED ECHILD ECHRNG ECOMM ECONNABORTED ECONNREFUSED ECONNRESET EDEADLK EDEADLOCK EDESTADDRREQ EDOM EDOTDOT EDQUOT
EEXIST EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EHWPOISON EIDRM EILSEQ EINPROGRESS EINTR EINVAL EIO EISCONN EISDIR EISNAM
EKEYEXPIRED EKEYREJECTED EKEYREVOKED EL2HLT EL2NSYNC EL3HLT EL3RST ELIBACC ELIBBAD ELIBEXEC ELIBMAX ELIBSCN ELNRNG
ELOOP EMEDIUMTYPE EMFILE EMLINK EMSGSIZE EMULTIHOP ENAMETOOLONG ENAVAIL ENETDOWN ENETRESET ENETUNREACH ENFILE ENOANO
ENOBUFS ENOCSI ENODATA ENODEV ENOENT ENOEXEC ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMEM ENOMSG ENONET ENOPKG ENOPROTOOPT
ENOSPC ENOSR ENOSTR ENOSYS ENOTBLK ENOTCONN ENOTDIR ENOTEMPTY ENOTNAM ENOTRECOVERABLE ENOTSOCK ENOTSUP ENOTTY ENOTUNIQ
ENXIO EOF EOPNOTSUPP EOVERFLOW EOWNERDEAD EPERM EPFNOSUPPORT EPIPE EPROTO EPROTONOSUPPORT EPROTOTYPE ERANGE EREMCHG
EREMOTE EREMOTEIO ERESTART ERFKILL EROFS ESHUTDOWN ESOCKTNOSUPPORT ESPIPE ESRCH ESRMNT ESTALE ESTRPIPE ETIME ETIMEDOUT
ETOOMANYREFS ETXTBSY EUCLEAN EUNATCH EUSERS EWOULDBLOCK EXDEV EXFULL EXIT_FAILURE EXIT_SUCCESS FE_ALL_EXCEPT
FE_DFL_ENV FE_DIVBYZERO FE_DOWNWARD FE_INEXACT FE_INVALID FE_OVERFLOW FE_TONEAREST FE_TOWARDZERO FE_UNDERFLOW
FE_UPWARD FILENAME_MAX FLT_DECIMAL_DIG FLT_DIG FLT_EPSILON FLT_EVAL_METHOD FLT_HAS_SUBNORM FLT_MANT_DIG FLT_MAX
FLT_MAX_10_EXP FLT_MAX_EXP FLT_MIN FLT_MIN_10_EXP FLT_MIN_EXP FLT_RADIX FLT_ROUNDS FLT_TRUE_MIN FOPEN_MAX FP_ILOGB0
FP_ILOGBNAN FP_INFINITE FP_NAN FP_NORMAL FP_SUBNORMAL FP_ZERO HUGE_VAL HUGE_VALF HUGE_VALL INFINITY INT16_C INT16_MAX
INT16_MIN INT32_C INT32_MAX INT32_MIN INT64_C INT64_MAX INT64_MIN INT8_C INT8_MAX INT8_MIN INTMAX_C INTMAX_MAX
INTMAX_MIN INTPTR_MAX INTPTR_MIN INT_FAST16_MAX INT_FAST16_MIN INT_FAST32_MAX INT_FAST32_MIN INT_FAST64_MAX
INT_FAST64_MIN INT_FAST8_MAX INT_FAST8_MIN INT_LEAST16_MAX INT_LEAST16_MIN INT_LEAST32_MAX INT_LEAST32_MIN
INT_LEAST64_MAX INT_LEAST64_MIN INT_LEAST8_MAX INT_LEAST8_MIN INT_MAX INT_MIN LC_ADDRESS LC_ALL LC_COLLATE LC_CTYPE
LC_IDENTIFICATION LC_MEASUREMENT LC_MESSAGES LC_MONETARY LC_NAME LC_NUMERIC LC_PAPER LC_TELEPHONE LC_TIME
LDBL_DECIMAL_DIG LDBL_DIG LDBL_EPSILON LDBL_HAS_SUBNORM LDBL_MANT_DIG LDBL_MAX LDBL_MAX_10_EXP LDBL_MAX_EXP LDBL_MIN
LDBL_MIN_10_EXP LDBL_MIN_EXP LDBL_TRUE_MIN LLONG_MAX LLONG_MIN LONG_MAX LONG_MIN L_tmpnam MATH_ERREXCEPT MATH_ERRNO
MB_CUR_MAX MB_LEN_MAX NAN NULL PTRDIFF_MAX PTRDIFF_MIN RAND_MAX SCHAR_MAX SCHAR_MIN SEEK_CUR SEEK_END SEEK_SET
SHRT_MAX SHRT_MIN SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL
SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMIN SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP
SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ SIG_ATOMIC_MAX SIG_ATOMIC_MIN SIG_DFL
SIG_ERR SIG_IGN SIZE_MAX TIME_UTC TMP_MAX UCHAR_MAX UINT16_C UINT16_MAX UINT32_C UINT32_MAX UINT64_C UINT64_MAX
UINT8_C UINT8_MAX UINTMAX_C UINTMAX_MAX UINTPTR_MAX UINT_FAST16_MAX UINT_FAST32_MAX UINT_FAST64_MAX UINT_FAST8_MAX
UINT_LEAST16_MAX UINT_LEAST32_MAX UINT_LEAST64_MAX UINT_LEAST8_MAX UINT_MAX ULLONG_MAX ULONG_MAX USHRT_MAX WCHAR_MAX
WCHAR_MIN WEOF WINT_MAX WINT_MIN alloca assert errno linux major math_errhandling minor offsetof setjmp signals slots
stderr stdin stdout unix va_arg va_copy va_end va_start
""".split()  # noqa: SIM905 - a table is read more easily as lines of text
)
"""Macros of C's headers and of GNU's dialect: no identifier of the generated code can be one."""

_GLOBALS = frozenset(
    """
DIR FILE a64l abort abs accept accept4 access acct acos acosh active_reg_t addrinfo adjtime alarm aligned_alloc
alphasort alphasort64 arc4random arc4random_buf arc4random_uniform asctime asctime_r asin asinh asprintf at_quick_exit
atan atan2 atanh atexit atof atoi atol atoll bcmp bcopy bind bind_textdomain_codeset bindresvport bindresvport6
bindtextdomain blkcnt64_t blkcnt_t blksize_t brk bsearch btowc bzero c16rtomb c32rtomb c8rtomb caddr_t calloc
canonicalize canonicalize_file_name cbrt cc_t ceil cfgetispeed cfgetospeed cfmakeraw cfsetispeed cfsetospeed
cfsetspeed chdir chmod chown chroot clearenv clearerr clearerr_unlocked clock clock_adjtime clock_getcpuclockid
clock_getres clock_gettime clock_nanosleep clock_settime clock_t clockid_t clone close close_range closedir closefrom
closelog cmsghdr comparison_fn_t confstr connect cookie_close_function_t cookie_io_functions_t cookie_read_function_t
cookie_seek_function_t cookie_write_function_t copy_file_range copysign cos cosh cpu_set_t creat creat64 crypt ctermid
ctime ctime_r cuserid daddl daddr_t daemon daylight dcgettext dcngettext ddivl dev_t dfmal dgettext difftime dirent
dirent64 dirfd dirname div div_t dl_find_object dladdr dladdr1 dlclose dlerror dlinfo dlmopen dlopen dlsym dlvsym
dmull dngettext double_t dprintf drand48 drand48_data drand48_r drem dremf dreml dsqrtl dsubl dup dup2 dup3 duplocale
dysize eaccess ecvt ecvt_r endgrent endhostent endnetent endnetgrent endprotoent endpwent endrpcent endservent
endusershell environ erand48 erand48_r erf erfc error_t euidaccess execl execle execlp execv execve execveat execvp
execvpe exit exp exp10 exp2 explicit_bzero expm1 f_owner_ex fabs faccessat fadd faddl fallocate fallocate64 fchdir
fchmod fchmodat fchown fchownat fclose fcloseall fcntl fcntl64 fcvt fcvt_r fd_mask fd_set fdatasync fdim fdiv fdivl
fdopen fdopendir feclearexcept fedisableexcept feenableexcept fegetenv fegetexcept fegetexceptflag fegetmode
fegetround feholdexcept femode_t fenv_t feof feof_unlocked feraiseexcept ferror ferror_unlocked fesetenv fesetexcept
fesetexceptflag fesetmode fesetround fetestexcept fetestexceptflag feupdateenv fexcept_t fexecve fflush
fflush_unlocked ffma ffmal ffs ffsl ffsll fgetc fgetc_unlocked fgetgrent fgetgrent_r fgetpos fgetpos64 fgetpwent
fgetpwent_r fgets fgets_unlocked fgetwc fgetwc_unlocked fgetws fgetws_unlocked file_handle fileno fileno_unlocked
finite finitef finitel float_t flock flock64 flockfile floor fma fmax fmaximum fmaximum_mag fmaximum_mag_num
fmaximum_num fmaxmag fmemopen fmin fminimum fminimum_mag fminimum_mag_num fminimum_num fminmag fmod fmul fmull fopen
fopen64 fopencookie fork fpathconf fpclassify fpos64_t fpos_t fpregset_t fprintf fputc fputc_unlocked fputs
fputs_unlocked fputwc fputwc_unlocked fputws fputws_unlocked fread fread_unlocked free freeaddrinfo freelocale freopen
freopen64 frexp fromfp fromfpx fsblkcnt64_t fsblkcnt_t fscanf fseek fseeko fseeko64 fsetpos fsetpos64 fsfilcnt64_t
fsfilcnt_t fsid_t fsqrt fsqrtl fstat fstat64 fstatat fstatat64 fsub fsubl fsync ftell ftello ftello64 ftruncate
ftruncate64 ftrylockfile funlockfile futimens futimes futimesat fwide fwprintf fwrite fwrite_unlocked fwscanf
gai_cancel gai_error gai_strerror gai_suspend gaicb gamma gammaf gammal gcvt get_current_dir_name getaddrinfo
getaddrinfo_a getc getc_unlocked getchar getchar_unlocked getcpu getcwd getdate getdate_err getdate_r getdelim
getdents64 getdirentries getdirentries64 getdomainname getdtablesize getegid getentropy getenv geteuid getgid getgrent
getgrent_r getgrgid getgrgid_r getgrnam getgrnam_r getgrouplist getgroups gethostbyaddr gethostbyaddr_r gethostbyname
gethostbyname2 gethostbyname2_r gethostbyname_r gethostent gethostent_r gethostid gethostname getipv4sourcefilter
getitimer getline getloadavg getlogin getlogin_r getnameinfo getnetbyaddr getnetbyaddr_r getnetbyname getnetbyname_r
getnetent getnetent_r getnetgrent getnetgrent_r getopt getopt_long getopt_long_only getpagesize getpass getpayload
getpeername getpgid getpgrp getpid getppid getpriority getprotobyname getprotobyname_r getprotobynumber
getprotobynumber_r getprotoent getprotoent_r getpt getpw getpwent getpwent_r getpwnam getpwnam_r getpwuid getpwuid_r
getresgid getresuid getrlimit getrlimit64 getrpcbyname getrpcbyname_r getrpcbynumber getrpcbynumber_r getrpcent
getrpcent_r getrusage getservbyname getservbyname_r getservbyport getservbyport_r getservent getservent_r getsid
getsockname getsockopt getsourcefilter getsubopt gettext gettid gettimeofday getuid getumask getusershell getw getwc
getwc_unlocked getwchar getwchar_unlocked getwd gid_t glob glob64 glob64_t glob_pattern_p glob_t globfree globfree64
gmtime gmtime_r grantpt greg_t gregset_t group group_filter group_member group_req group_source_req gsignal herror
hostent hstrerror htonl htons hypot id_t idtype_t ilogb imaxabs imaxdiv imaxdiv_t in6_addr in6_pktinfo in6addr_any
in6addr_loopback in_addr in_addr_t in_pktinfo in_port_t index inet6_opt_append inet6_opt_find inet6_opt_finish
inet6_opt_get_val inet6_opt_init inet6_opt_next inet6_opt_set_val inet6_option_alloc inet6_option_append
inet6_option_find inet6_option_init inet6_option_next inet6_option_space inet6_rth_add inet6_rth_getaddr
inet6_rth_init inet6_rth_reverse inet6_rth_segments inet6_rth_space inet_addr inet_aton inet_lnaof inet_makeaddr
inet_net_ntop inet_net_pton inet_neta inet_netof inet_network inet_nsap_addr inet_nsap_ntoa inet_ntoa inet_ntop
inet_pton initgroups initstate initstate_r innetgr ino64_t ino_t int16_t int32_t int64_t int8_t int_fast16_t
int_fast32_t int_fast64_t int_fast8_t int_least16_t int_least32_t int_least64_t int_least8_t intmax_t intptr_t ioctl
iovec ip6_mtuinfo ip_mreq ip_mreq_source ip_mreqn ip_msfilter ip_opts ipv6_mreq iruserok iruserok_af isalnum isalnum_l
isalpha isalpha_l isascii isatty isblank isblank_l iscanonical iscntrl iscntrl_l isctype isdigit isdigit_l iseqsig
isfdtype isfinite isgraph isgraph_l isgreater isgreaterequal isinf isinff isinfl isless islessequal islessgreater
islower islower_l isnan isnanf isnanl isnormal isprint isprint_l ispunct ispunct_l issignaling isspace isspace_l
isunordered isupper isupper_l iswalnum iswalnum_l iswalpha iswalpha_l iswblank iswblank_l iswcntrl iswcntrl_l iswctype
iswctype_l iswdigit iswdigit_l iswgraph iswgraph_l iswlower iswlower_l iswprint iswprint_l iswpunct iswpunct_l
iswspace iswspace_l iswupper iswupper_l iswxdigit iswxdigit_l isxdigit isxdigit_l iszero itimerspec itimerval j0 j1
jmp_buf jn jrand48 jrand48_r key_t kill killpg l64a labs lchmod lchown lcong48 lcong48_r lconv ldexp ldiv ldiv_t
lgamma lgamma_r linger link link_map linkat listen llabs lldiv lldiv_t llogb llrint llround locale_t localeconv
localtime localtime_r lockf lockf64 loff_t log log10 log1p log2 logb longjmp lrand48 lrand48_r lrint lround lseek
lseek64 lstat lstat64 lutimes madvise mallinfo mallinfo2 malloc malloc_info malloc_stats malloc_trim
malloc_usable_size mallopt max_align_t mblen mbrlen mbrtoc16 mbrtoc32 mbrtoc8 mbrtowc mbsinit mbsnrtowcs mbsrtowcs
mbstate_t mbstowcs mbtowc mcontext_t memalign memccpy memchr memcmp memcpy memfd_create memfrob memmem memmove mempcpy
memrchr memset mincore mkdir mkdirat mkdtemp mkfifo mkfifoat mknod mknodat mkostemp mkostemp64 mkostemps mkostemps64
mkstemp mkstemp64 mkstemps mkstemps64 mktemp mktime mlock mlock2 mlockall mmap mmap64 mmsghdr mode_t modf mprotect
mrand48 mrand48_r mremap msghdr msync munlock munlockall munmap name_to_handle_at nan nanosleep nearbyint netent
newlocale nextafter nextdown nexttoward nexttowardf nexttowardl nextup nfds_t ngettext nice nlink_t nrand48 nrand48_r
ntohl ntohs nullptr_t obstack obstack_printf obstack_vprintf off64_t off_t on_exit open open64 open_by_handle_at
open_memstream open_wmemstream openat openat64 opendir openlog optarg opterr optind option optopt osockaddr passwd
pathconf pause pclose perror pid_t pipe pipe2 pkey_alloc pkey_free pkey_get pkey_mprotect pkey_set poll pollfd popen
posix_fadvise posix_fadvise64 posix_fallocate posix_fallocate64 posix_madvise posix_memalign posix_openpt pow ppoll
pread pread64 preadv preadv2 preadv64 preadv64v2 printf prlimit prlimit64 process_madvise process_mrelease
process_vm_readv process_vm_writev profil program_invocation_name program_invocation_short_name protoent pselect
psiginfo psignal pthread_atfork pthread_attr_destroy pthread_attr_getaffinity_np pthread_attr_getdetachstate
pthread_attr_getguardsize pthread_attr_getinheritsched pthread_attr_getschedparam pthread_attr_getschedpolicy
pthread_attr_getscope pthread_attr_getsigmask_np pthread_attr_getstack pthread_attr_getstackaddr
pthread_attr_getstacksize pthread_attr_init pthread_attr_setaffinity_np pthread_attr_setdetachstate
pthread_attr_setguardsize pthread_attr_setinheritsched pthread_attr_setschedparam pthread_attr_setschedpolicy
pthread_attr_setscope pthread_attr_setsigmask_np pthread_attr_setstack pthread_attr_setstackaddr
pthread_attr_setstacksize pthread_attr_t pthread_barrier_destroy pthread_barrier_init pthread_barrier_t
pthread_barrier_wait pthread_barrierattr_destroy pthread_barrierattr_getpshared pthread_barrierattr_init
pthread_barrierattr_setpshared pthread_barrierattr_t pthread_cancel pthread_clockjoin_np pthread_cond_broadcast
pthread_cond_clockwait pthread_cond_destroy pthread_cond_init pthread_cond_signal pthread_cond_t
pthread_cond_timedwait pthread_cond_wait pthread_condattr_destroy pthread_condattr_getclock
pthread_condattr_getpshared pthread_condattr_init pthread_condattr_setclock pthread_condattr_setpshared
pthread_condattr_t pthread_create pthread_detach pthread_equal pthread_exit pthread_getaffinity_np
pthread_getattr_default_np pthread_getattr_np pthread_getconcurrency pthread_getcpuclockid pthread_getname_np
pthread_getschedparam pthread_getspecific pthread_join pthread_key_create pthread_key_delete pthread_key_t
pthread_kill pthread_mutex_clocklock pthread_mutex_consistent pthread_mutex_consistent_np pthread_mutex_destroy
pthread_mutex_getprioceiling pthread_mutex_init pthread_mutex_lock pthread_mutex_setprioceiling pthread_mutex_t
pthread_mutex_timedlock pthread_mutex_trylock pthread_mutex_unlock pthread_mutexattr_destroy
pthread_mutexattr_getprioceiling pthread_mutexattr_getprotocol pthread_mutexattr_getpshared
pthread_mutexattr_getrobust pthread_mutexattr_getrobust_np pthread_mutexattr_gettype pthread_mutexattr_init
pthread_mutexattr_setprioceiling pthread_mutexattr_setprotocol pthread_mutexattr_setpshared
pthread_mutexattr_setrobust pthread_mutexattr_setrobust_np pthread_mutexattr_settype pthread_mutexattr_t pthread_once
pthread_once_t pthread_rwlock_clockrdlock pthread_rwlock_clockwrlock pthread_rwlock_destroy pthread_rwlock_init
pthread_rwlock_rdlock pthread_rwlock_t pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock pthread_rwlock_tryrdlock
pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_rwlock_wrlock pthread_rwlockattr_destroy
pthread_rwlockattr_getkind_np pthread_rwlockattr_getpshared pthread_rwlockattr_init pthread_rwlockattr_setkind_np
pthread_rwlockattr_setpshared pthread_rwlockattr_t pthread_self pthread_setaffinity_np pthread_setattr_default_np
pthread_setcancelstate pthread_setcanceltype pthread_setconcurrency pthread_setname_np pthread_setschedparam
pthread_setschedprio pthread_setspecific pthread_sigmask pthread_sigqueue pthread_spin_destroy pthread_spin_init
pthread_spin_lock pthread_spin_trylock pthread_spin_unlock pthread_spinlock_t pthread_t pthread_testcancel
pthread_timedjoin_np pthread_tryjoin_np pthread_yield ptrdiff_t ptsname ptsname_r putc putc_unlocked putchar
putchar_unlocked putenv putgrent putpwent puts putw putwc putwc_unlocked putwchar putwchar_unlocked pvalloc pwrite
pwrite64 pwritev pwritev2 pwritev64 pwritev64v2 qecvt qecvt_r qfcvt qfcvt_r qgcvt qsort qsort_r quad_t quick_exit
raise rand rand_r random random_data random_r rawmemchr rcmd rcmd_af re_compile_fastmap re_compile_pattern re_dfa_t
re_match re_match_2 re_pattern_buffer re_registers re_search re_search_2 re_set_registers re_set_syntax
re_syntax_options read readahead readdir readdir64 readdir64_r readdir_r readlink readlinkat readv realloc
reallocarray realpath recv recvfrom recvmmsg recvmsg reg_errcode_t reg_syntax_t regcomp regerror regex_t regexec
regfree register_t regmatch_t regoff_t remainder remap_file_pages remove remquo rename renameat renameat2 revoke
rewind rewinddir rexec rexec_af rindex rint rlim64_t rlim_t rlimit rlimit64 rmdir round roundeven rpcent rpmatch
rresvport rresvport_af rusage ruserok ruserok_af s_reg_t sa_family_t sbrk scalb scalbf scalbl scalbln scalbn scandir
scandir64 scandirat scandirat64 scanf sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getcpu
sched_getparam sched_getscheduler sched_param sched_rr_get_interval sched_setaffinity sched_setparam
sched_setscheduler sched_yield secure_getenv seed48 seed48_r seekdir select sem_clockwait sem_close sem_destroy
sem_getvalue sem_init sem_open sem_post sem_t sem_timedwait sem_trywait sem_unlink sem_wait send sendmmsg sendmsg
sendto servent setbuf setbuffer setdomainname setegid setenv seteuid setgid setgrent setgroups sethostent sethostid
sethostname setipv4sourcefilter setitimer setlinebuf setlocale setlogin setlogmask setnetent setnetgrent setns
setpayload setpayloadsig setpgid setpgrp setpriority setprotoent setpwent setregid setresgid setresuid setreuid
setrlimit setrlimit64 setrpcent setservent setsid setsockopt setsourcefilter setstate setstate_r settimeofday setuid
setusershell setvbuf shm_open shm_unlink shutdown sig_atomic_t sig_t sigabbrev_np sigaction sigaddset sigaltstack
sigandset sigblock sigcontext sigdelset sigdescr_np sigemptyset sigevent sigevent_t sigfillset siggetmask sighandler_t
sighold sigignore siginfo_t siginterrupt sigisemptyset sigismember sigjmp_buf siglongjmp signal signbit signgam
significand significandf significandl sigorset sigpause sigpending sigprocmask sigqueue sigrelse sigreturn sigset
sigset_t sigsetmask sigstack sigsuspend sigtimedwait sigval sigval_t sigwait sigwaitinfo sin sincos sinh size_t sleep
snprintf sockaddr sockaddr_in sockaddr_in6 sockaddr_storage sockatmark socket socketpair socklen_t speed_t splice
sprintf sqrt srand srand48 srand48_r srandom srandom_r sscanf ssignal ssize_t stack_t stat stat64 statx
statx_timestamp stpcpy stpncpy strcasecmp strcasecmp_l strcasestr strcat strchr strchrnul strcmp strcoll strcoll_l
strcpy strcspn strdup strerror strerror_l strerror_r strerrordesc_np strerrorname_np strfromd strfromf strfromf128
strfromf32 strfromf32x strfromf64 strfromf64x strfroml strfry strftime strftime_l strlen strncasecmp strncasecmp_l
strncat strncmp strncpy strndup strnlen strpbrk strptime strptime_l strrchr strsep strsignal strspn strstr strtod
strtod_l strtof strtof128 strtof128_l strtof32 strtof32_l strtof32x strtof32x_l strtof64 strtof64_l strtof64x
strtof64x_l strtof_l strtoimax strtok strtok_r strtol strtol_l strtold strtold_l strtoll strtoll_l strtoq strtoul
strtoul_l strtoull strtoull_l strtoumax strtouq strverscmp strxfrm strxfrm_l suseconds_t swab swprintf swscanf symlink
symlinkat sync sync_file_range syncfs syscall sysconf syslog system sysv_signal tan tanh tcdrain tcflag_t tcflow
tcflush tcgetattr tcgetpgrp tcgetsid tcsendbreak tcsetattr tcsetpgrp tee telldir tempnam termio termios textdomain
tgamma tgkill time time_t timegm timelocal timer_create timer_delete timer_getoverrun timer_gettime timer_settime
timer_t timespec timespec_get timespec_getres timeval timex timezone tm tmpfile tmpfile64 tmpnam tmpnam_r toascii
tolower tolower_l totalorder totalordermag toupper toupper_l towctrans towctrans_l towlower towlower_l towupper
towupper_l trunc truncate truncate64 ttyname ttyname_r ttyslot tzname tzset u_char u_int u_int16_t u_int32_t u_int64_t
u_int8_t u_long u_quad_t u_short ualarm ucontext_t ucred ufromfp ufromfpx uid_t uint uint16_t uint32_t uint64_t
uint8_t uint_fast16_t uint_fast32_t uint_fast64_t uint_fast8_t uint_least16_t uint_least32_t uint_least64_t
uint_least8_t uintmax_t uintptr_t ulong umask uname ungetc ungetwc unlink unlinkat unlockpt unsetenv unshare
useconds_t uselocale ushort usleep utimensat utimes utsname va_list valloc vasprintf vdprintf versionsort
versionsort64 vfork vfprintf vfscanf vfwprintf vfwscanf vhangup vmsplice vprintf vscanf vsnprintf vsprintf vsscanf
vswprintf vswscanf vsyslog vwprintf vwscanf wait wait3 wait4 waitid waitpid wcpcpy wcpncpy wcrtomb wcscasecmp
wcscasecmp_l wcscat wcschr wcschrnul wcscmp wcscoll wcscoll_l wcscpy wcscspn wcsdup wcsftime wcsftime_l wcslen
wcsncasecmp wcsncasecmp_l wcsncat wcsncmp wcsncpy wcsnlen wcsnrtombs wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstod
wcstod_l wcstof wcstof128 wcstof128_l wcstof32 wcstof32_l wcstof32x wcstof32x_l wcstof64 wcstof64_l wcstof64x
wcstof64x_l wcstof_l wcstoimax wcstok wcstol wcstol_l wcstold wcstold_l wcstoll wcstoll_l wcstombs wcstoq wcstoul
wcstoul_l wcstoull wcstoull_l wcstoumax wcstouq wcswcs wcswidth wcsxfrm wcsxfrm_l wctob wctomb wctrans wctrans_l
wctrans_t wctype wctype_l wctype_t wcwidth winsize wint_t wmemchr wmemcmp wmemcpy wmemmove wmempcpy wmemset wprintf
write writev wscanf y0 y1 yn
""".split()  # noqa: SIM905 - a table is read more easily as lines of text
)

_FLOATING = frozenset(
    """
acos acosh asin asinh atan atan2 atanh canonicalize cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs
fdim floor fma fmax fmaximum fmaximum_mag fmaximum_mag_num fmaximum_num fmaxmag fmin fminimum fminimum_mag
fminimum_mag_num fminimum_num fminmag fmod frexp fromfp fromfpx getpayload hypot ilogb j0 j1 jn ldexp lgamma llogb
llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter nextdown nextup pow remainder
remquo rint round roundeven scalbln scalbn setpayload setpayloadsig sin sincos sinh sqrt tan tanh tgamma totalorder
totalordermag trunc ufromfp ufromfpx y0 y1 yn
""".split()  # noqa: SIM905 - a table is read more easily as lines of text
)
"""Functions that C has once for each floating-point type."""

_SUFFIXES = re.compile(r"(?:f|l|f32|f64|f128|f32x|f64x)(_r)?$")


def is_global(name: str) -> bool:
    """Whether C's headers declare a function, a type, or a variable of this name."""
    return name in _GLOBALS or _SUFFIXES.sub(r"\1", name) in _FLOATING
